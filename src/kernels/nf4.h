#pragma once

#include <gradus/kernels/nf4.h>

#include "kernels/operators.h"

namespace gradus::kernels {

/// `weight` itself, or the matrix that it stands for as `dtype`, made for this use.
Tensor dense(const Tensor& weight, at::ScalarType dtype);

/// Like `linear` with a weight in 4 bits: forms the matrix once more in the backward pass instead
/// of keeping it.
Tensor nf4_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace gradus::kernels
