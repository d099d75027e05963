#pragma once

#include "kernels/operators.h"

namespace gradus::kernels {

/// Whether the product of `x` with each of these weights is to run in 8 bits now. With `in_out` the
/// weights are (in, out), else (out, in).
bool takes_fp8(const Tensor& x, at::TensorList weights, bool in_out = false);

/// One output for each weight, as one product. `biases` is empty or has one for each weight.
std::vector<Tensor> fp8_linear(const Tensor& x, const std::vector<Tensor>& weights,
                               const std::vector<Tensor>& biases, bool in_out = false);

/// linear(swiglu(gate, up), weight, bias); `gate` and `up` may be parts of one matrix.
Tensor fp8_swiglu_linear(const Tensor& gate, const Tensor& up, const Tensor& weight,
                         const Tensor& bias);

}  // namespace gradus::kernels
