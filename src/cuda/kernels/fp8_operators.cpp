// The operators of products in 8-bit floating point for CUDA tensors.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cuda/kernels/tensor_arguments.h"

namespace gradus::cuda {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

void check_rows(const Tensor& x, const char* what) {
  TORCH_CHECK(x.dim() == 2 && x.scalar_type() == at::kBFloat16 && x.stride(1) == 1 &&
                  x.stride(0) % 8 == 0 && x.size(1) % 8 == 0 && x.numel() > 0 &&
                  reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0,
              what, ": expected rows of bfloat16 in steps of 8 elements, received ",
              x.scalar_type(), " of shape ", x.sizes(), " with strides ", x.strides());
}

/// Rows and columns of all parts together.
std::pair<int64_t, int64_t> whole_size(at::TensorList parts, int64_t dim) {
  int64_t rows = 0, columns = 0;
  for (const auto& part : parts) {
    check_rows(part, "gradus fp8_cast");
    TORCH_CHECK(part.size(0) % 16 == 0 && part.size(1) % 16 == 0 &&
                    part.size(1 - dim) == parts[0].size(1 - dim) &&
                    part.device() == parts[0].device(),
                "gradus fp8_cast: expected multiples of 16 that fit together, received ",
                part.sizes(), " beside ", parts[0].sizes());
    rows = dim == 0 ? rows + part.size(0) : part.size(0);
    columns = dim == 1 ? columns + part.size(1) : part.size(1);
  }
  return {rows, columns};
}

std::tuple<Tensor, Tensor, Tensor> fp8_cast_of(at::TensorList parts, int64_t dim, bool wide_range,
                                               bool with_rows, bool with_columns,
                                               const OptionalTensor& amax) {
  TORCH_CHECK(!parts.empty() && parts.size() <= kMaxFp8Parts && (dim == 0 || dim == 1),
              "gradus fp8_cast: expected 1 to ", kMaxFp8Parts, " matrices, received ",
              parts.size());
  const auto [rows, columns] = whole_size(parts, dim);
  const c10::cuda::CUDAGuard device(parts[0].device());
  const auto options = parts[0].options().dtype(wide_range ? at::ScalarType::Float8_e5m2
                                                           : at::ScalarType::Float8_e4m3fn);
  const auto out = with_rows ? at::empty({rows, columns}, options) : Tensor(),
             turned = with_columns ? at::empty({columns, rows}, options) : Tensor(),
             numbers = at::empty({2}, parts[0].options().dtype(at::kFloat));
  auto* place = numbers.mutable_data_ptr<float>();
  Fp8Cast work{};
  work.count = int(parts.size());
  work.out_stride = columns;
  work.turned_stride = rows;
  work.scale = place;
  work.amax = place + 1;
  work.wide_range = wide_range;
  int64_t first = 0;
  for (int i = 0; i < work.count; ++i) {
    const auto& part = parts[size_t(i)];
    auto& to = work.parts[i];
    to.in = part.const_data_ptr();
    to.rows = part.size(0);
    to.columns = part.size(1);
    to.stride = part.stride(0);
    if (with_rows)
      to.out = static_cast<char*>(out.mutable_data_ptr()) + first * (dim == 0 ? columns : 1);
    if (with_columns)
      to.turned = static_cast<char*>(turned.mutable_data_ptr()) + first * (dim == 0 ? 1 : rows);
    first += part.size(dim);
  }
  if (amax)
    work.amax = const_cast<float*>(scalar_on(*amax, parts[0].device(), "gradus fp8_cast, amax"));
  else
    C10_CUDA_CHECK(fp8_amax(work, stream_of(parts[0])));
  C10_CUDA_CHECK(fp8_cast(work, stream_of(parts[0])));
  return {out, turned, numbers.narrow(0, 0, 1)};
}

GatedRows gated_work(const Tensor& gate, const Tensor& up) {
  check_rows(gate, "gradus gated_rows, gate");
  check_rows(up, "gradus gated_rows, up");
  TORCH_CHECK(gate.sizes() == up.sizes() && gate.device() == up.device(),
              "gradus gated_rows: gate ", gate.sizes(), " and up ", up.sizes(), " do not fit");
  GatedRows work{};
  work.gate = gate.const_data_ptr();
  work.up = up.const_data_ptr();
  work.rows = gate.size(0);
  work.columns = gate.size(1);
  work.gate_stride = gate.stride(0);
  work.up_stride = up.stride(0);
  return work;
}

std::tuple<Tensor, Tensor> gated_rows_of(const Tensor& gate, const Tensor& up) {
  auto work = gated_work(gate, up);
  const c10::cuda::CUDAGuard device(gate.device());
  auto product = at::empty(gate.sizes(), gate.options()),
       amax = at::empty({1}, gate.options().dtype(at::kFloat));
  work.product = product.mutable_data_ptr();
  work.amax = amax.mutable_data_ptr<float>();
  C10_CUDA_CHECK(gated_forward(work, stream_of(gate)));
  return {product, amax};
}

Tensor gated_rows_backward_of(const Tensor& grad, const Tensor& gate, const Tensor& up) {
  auto work = gated_work(gate, up);
  TORCH_CHECK(grad.sizes() == gate.sizes() && grad.is_contiguous() &&
                  grad.scalar_type() == at::kBFloat16 && grad.device() == gate.device(),
              "gradus gated_rows: gate ", gate.sizes(), " and gradient ", grad.sizes(),
              " do not fit");
  const c10::cuda::CUDAGuard device(gate.device());
  auto both = at::empty({gate.size(0), 2 * gate.size(1)}, gate.options());
  work.grad = grad.const_data_ptr();
  work.grad_gate = both.mutable_data_ptr();
  work.grad_up = static_cast<char*>(both.mutable_data_ptr()) + 2 * gate.size(1);
  work.grad_stride = both.stride(0);
  C10_CUDA_CHECK(gated_backward(work, stream_of(gate)));
  return both;
}

}  // namespace
}  // namespace gradus::cuda

TORCH_LIBRARY_IMPL(gradus, CUDA, library) {
  library.impl("fp8_cast", gradus::cuda::fp8_cast_of);
  library.impl("gated_rows", gradus::cuda::gated_rows_of);
  library.impl("gated_rows_backward", gradus::cuda::gated_rows_backward_of);
}
