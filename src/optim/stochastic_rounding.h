#pragma once

#include <torch/types.h>

#include <cstdint>

namespace gradus {

/// float32 `numbers` rounded to what bfloat16 can hold, up or down by chance, so that the mean of
/// many roundings is the number itself. `chances` has a whole number from 0 to 65535 for each:
/// below the sixteen bits that are cut off, the number is rounded away from zero.
torch::Tensor rounded_by_chance(const torch::Tensor& numbers, const torch::Tensor& chances);

/// `count` whole numbers from 0 to 2³² - 1, int64 on `device`, that look random. They depend on
/// `seed` alone: nothing has to be saved, and all processes have the same.
torch::Tensor scattered_bits(int64_t count, uint64_t seed, torch::Device device);

}  // namespace gradus
