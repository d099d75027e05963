// The operator of weights in 4 bits for CUDA tensors.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cuda/kernels/tensor_arguments.h"

namespace gradus::cuda {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor nf4_dense_of(const Tensor& packed, const Tensor& absmax, const OptionalTensor& codes,
                    const OptionalTensor& values, const OptionalTensor& offset,
                    at::IntArrayRef sizes, at::ScalarType type) {
  const c10::cuda::CUDAGuard device(packed.device());
  auto out = at::empty(sizes, packed.options().dtype(type));
  const auto count = out.numel(), blocks = count / 64;
  const bool nested = codes.has_value();
  TORCH_CHECK(packed.scalar_type() == at::kByte && packed.is_contiguous() &&
                  packed.numel() * 2 == count && count % 64 == 0 &&
                  absmax.scalar_type() == at::kFloat && absmax.is_contiguous() &&
                  absmax.numel() == (nested ? (blocks + 255) / 256 : blocks) &&
                  absmax.device() == packed.device(),
              "gradus nf4_dense: ", packed.numel(), " bytes and ", absmax.numel(),
              " scales do not make a matrix of ", sizes);
  TORCH_CHECK(
      !nested || (values && offset && codes->scalar_type() == at::kByte && codes->is_contiguous() &&
                  codes->numel() == blocks && codes->device() == packed.device() &&
                  values->scalar_type() == at::kFloat && values->is_contiguous() &&
                  values->numel() == 256 && values->device() == packed.device()),
      "gradus nf4_dense: codes of scales that do not fit");
  Nf4Dense work{};
  work.type = element_of(out);
  work.packed = packed.const_data_ptr<uint8_t>();
  work.absmax = absmax.const_data_ptr<float>();
  if (nested) {
    work.codes = codes->const_data_ptr<uint8_t>();
    work.values = values->const_data_ptr<float>();
    work.offset = scalar_on(*offset, packed.device(), "gradus nf4_dense, offset");
  }
  work.out = out.mutable_data_ptr();
  work.count = count;
  C10_CUDA_CHECK(nf4_dense(work, stream_of(packed)));
  return out;
}

}  // namespace
}  // namespace gradus::cuda

TORCH_LIBRARY_IMPL(gradus, CUDA, library) { library.impl("nf4_dense", gradus::cuda::nf4_dense_of); }
