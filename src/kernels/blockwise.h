#pragma once

#include <torch/types.h>

/// Numbers (optimizer states, scales) in a few bits: codes into a table of values, and one scale
/// per block.
///
/// Nothing here waits for the device.
namespace gradus::blockwise {

/// Elements that share a scale in bitsandbytes.
inline constexpr int64_t kBlock = 256;

/// The sorted values of bitsandbytes' dynamic data type, from 10^-exponents to 1: 2^(exponents + 1)
/// of them, half of them negative if `is_signed`. On the CPU.
torch::Tensor dynamic_values(bool is_signed, int64_t exponents = 7);

/// What stands for `codes` (uint8, whole blocks but for the last): values times scales, float32, in
/// the shape of `codes`.
torch::Tensor dequantize(const torch::Tensor& codes, const torch::Tensor& scales,
                         const torch::Tensor& values, int64_t block = kBlock);

/// Writes `numbers` (float32) into `codes` and `scales` as bitsandbytes does; `values` are
/// `dynamic_values` of 7 exponents.
///
/// Its CPU kernel looks the code up in a table of 65536 steps from -1 to 1, so that numbers below
/// 1.5e-5 of their block's largest are not told apart; its CUDA kernel takes the nearest value with
/// the same sign. Both are kept: the device of `codes` decides.
void quantize(const torch::Tensor& numbers, const torch::Tensor& values, const torch::Tensor& codes,
              const torch::Tensor& scales);

/// The rule of the CUDA kernel, on any device.
void quantize_to_nearest(const torch::Tensor& numbers, const torch::Tensor& values,
                         const torch::Tensor& codes, const torch::Tensor& scales);

}  // namespace gradus::blockwise
