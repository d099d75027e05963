#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/kernels/launch.h"

/// From tensors to what `launch.h` takes. Whoever calls these operators has chosen fitting tensors;
/// the checks here keep a mistake from becoming a wrong access.
namespace gradus::cuda {

inline Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return Element::float32;
    case at::kHalf: return Element::float16;
    case at::kBFloat16: return Element::bfloat16;
    default:
      TORCH_CHECK(false, "gradus kernels take float32, float16 and bfloat16, received ",
                  x.scalar_type());
  }
}

inline void check_same(const at::Tensor& a, const at::Tensor& b, const char* what) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
                  a.sizes() == b.sizes() && b.is_contiguous(),
              what, ": expected a contiguous ", a.scalar_type(), " tensor of shape ", a.sizes(),
              " on ", a.device(), ", received ", b.scalar_type(), " of shape ", b.sizes(), " on ",
              b.device());
}

inline const float* scalar_on(const at::Tensor& scalar, const at::Device& device,
                              const char* what) {
  TORCH_CHECK(
      scalar.scalar_type() == at::kFloat && scalar.numel() == 1 && scalar.device() == device, what,
      ": expected one float32 number on ", device, ", received ", scalar.scalar_type(),
      " of shape ", scalar.sizes(), " on ", scalar.device());
  return scalar.const_data_ptr<float>();
}

inline cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

}  // namespace gradus::cuda
