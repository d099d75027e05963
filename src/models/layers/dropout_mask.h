#pragma once

#include <torch/types.h>

namespace gradus::layers {

/// Whether `dropout_mask` draws what ATen's own dropout draws on this machine. Where ATen has
/// another source (MKL on some processors), it does not. Tried once per process.
bool dropout_mask_equals_aten();

/// What `at::dropout` multiplies `x` by: 0 with probability `p`, otherwise 1 / (1 - p).
///
/// `x` is float32 on the CPU and 0 < p < 1. The numbers are those that ATen draws from the default
/// generator, and the generator is left in the same state; it takes a fraction of the time, because
/// the generator's words are made many at once.
torch::Tensor dropout_mask(const torch::Tensor& x, double p);

}  // namespace gradus::layers
