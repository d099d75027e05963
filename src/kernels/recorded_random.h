#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace gradus::kernels {

/// How many random numbers were drawn so far by the work that is being recorded as a CUDA graph on
/// the device of `like`; nothing while none is. An operator like the kernels, because models reach
/// the plugin in no other way.
std::optional<uint64_t> recorded_random_place(const torch::Tensor& like);

}  // namespace gradus::kernels
