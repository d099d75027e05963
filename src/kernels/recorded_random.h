#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

/// Random numbers in work that is being recorded as a CUDA graph. There the generator of the GPU does not tell its state;
/// its place in the recording stands for it. Operators like the kernels, because models reach the plugin in no other way.
namespace gradus::kernels {

/// How many random numbers the work recorded so far has drawn on the GPU of `like`; nothing while no work is recorded.
std::optional<uint64_t> recorded_random_place(const torch::Tensor& like);
/// Goes to such a place, back or on again: what is recorded next draws the numbers that come there. Only while work is recorded.
void set_recorded_random_place(const torch::Tensor& like, uint64_t place);

}  // namespace gradus::kernels
