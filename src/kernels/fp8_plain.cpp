// The plain forms of the operators of products in 8 bits: the kernels' numbers in ATen operations.
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>

#include "kernels/operators.h"

namespace gradus::kernels::plain {

std::tuple<Tensor, Tensor, Tensor> fp8_cast(at::TensorList parts, int64_t dim, bool wide_range,
                                            bool rows, bool columns, const OptionalTensor& amax) {
  const auto whole = (parts.size() == 1 ? parts[0] : at::cat(parts, dim)).to(at::kFloat);
  const double limit = wide_range ? 57344.0 : 448.0;
  // A factor that is finite also where all values are zero.
  const auto largest = (amax ? *amax : whole.abs().amax()).clamp_min(1e-30).reshape({1});
  const auto factor = limit / largest;
  const auto rounded =
      (whole * factor)
          .clamp(-limit, limit)
          .to(wide_range ? at::ScalarType::Float8_e5m2 : at::ScalarType::Float8_e4m3fn);
  return {rows ? rounded.contiguous() : Tensor(), columns ? rounded.t().contiguous() : Tensor(),
          largest / limit};
}

Tensor fp8_product(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                   const OptionalTensor& bias, bool fast) {
  if (a.is_cuda())
    return at::_scaled_mm(a, b.t(), scale_a, scale_b, bias, std::nullopt, at::kBFloat16, fast);
  auto y = at::mm(a.to(at::kFloat), b.to(at::kFloat).t()) * (scale_a * scale_b);
  if (bias) y = y + bias->to(at::kFloat);
  return y.to(at::kBFloat16);
}

std::tuple<Tensor, Tensor> gated_rows(const Tensor& gate, const Tensor& up) {
  const auto g = gate.to(at::kFloat);
  const auto product = (g * at::sigmoid(g) * up.to(at::kFloat)).to(gate.scalar_type());
  return {product, product.abs().amax().to(at::kFloat).reshape({1})};
}

Tensor gated_rows_backward(const Tensor& grad, const Tensor& gate, const Tensor& up) {
  const auto d = grad.to(at::kFloat), g = gate.to(at::kFloat), share = at::sigmoid(g);
  const auto to_gate = d * up.to(at::kFloat) * share * (1.0 + g * (1.0 - share));
  return at::cat({to_gate, d * g * share}, 1).to(gate.scalar_type());
}

}  // namespace gradus::kernels::plain
