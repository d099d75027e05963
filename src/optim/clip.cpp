#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <gradus/optim/clip.h>
#include <gradus/optim/optimizer.h>

#include <cmath>
#include <limits>

namespace gradus {
namespace {

constexpr int64_t kSmall =
    4096;  // elements in all up to which a plain loop beats the kernels' overhead

std::vector<torch::Tensor> gradients(const std::vector<torch::Tensor>& params) {
  std::vector<torch::Tensor> grads;
  grads.reserve(params.size());
  for (const auto& param : params)
    if (const auto& grad = param.grad(); grad.defined()) grads.push_back(grad);
  return grads;
}

bool all_small(const std::vector<torch::Tensor>& params) {
  int64_t count = 0;
  for (const auto& param : params) {
    const auto& grad = param.grad();
    if (!grad.defined()) continue;
    if (!grad.is_cpu() || grad.scalar_type() != at::kFloat || grad.layout() != at::kStrided ||
        !grad.is_contiguous())
      return false;
    count += grad.numel();
    if (count > kSmall) return false;
  }
  return true;
}

// The norm of the tensors' norms. Torch's kernel adds the squares in vectors whose width depends on
// the processor, so only single numbers are spared a call of it.
float small_norm(const std::vector<torch::Tensor>& params) {
  auto norms = torch::empty({int64_t(params.size())}, at::kFloat);
  auto* values = norms.mutable_data_ptr<float>();
  int64_t count = 0;
  for (const auto& param : params)
    if (const auto& grad = param.grad(); grad.defined())
      values[count++] = grad.numel() == 1
                            ? std::abs(*grad.const_data_ptr<float>())
                            : *at::linalg_vector_norm(grad, 2.0).const_data_ptr<float>();
  if (count < norms.numel()) norms = norms.narrow(0, 0, count);
  return *at::linalg_vector_norm(norms, 2.0).const_data_ptr<float>();
}

void scale_small(const std::vector<torch::Tensor>& params, float factor) {
  for (const auto& param : params) {
    const auto& grad = param.grad();
    if (!grad.defined()) continue;
    auto* values = static_cast<float*>(grad.mutable_data_ptr());
    for (int64_t i = 0, n = grad.numel(); i < n; ++i) values[i] *= factor;
    grad.unsafeGetTensorImpl()->bump_version();
  }
}

torch::Tensor scalar(float value) {
  auto tensor = torch::empty({}, at::kFloat);
  *tensor.mutable_data_ptr<float>() = value;
  return tensor;
}

torch::Tensor norm_of(const std::vector<torch::Tensor>& grads, double norm_type) {
  if (grads.empty()) return torch::zeros({});
  auto norms = at::_foreach_norm(grads, norm_type);
  for (auto& norm : norms) norm = norm.to(norms[0].options());
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

}  // namespace

torch::Tensor grad_norm(const std::vector<torch::Tensor>& params, double norm_type) {
  torch::NoGradGuard no_grad;
  if (norm_type == 2.0 && all_small(params)) return scalar(small_norm(params));
  return norm_of(gradients(params), norm_type);
}

torch::Tensor clip_grad_norm_(const std::vector<torch::Tensor>& params, double max_norm,
                              double norm_type) {
  torch::NoGradGuard no_grad;
  if (norm_type == 2.0 && all_small(params)) {
    const float norm = small_norm(params);
    const auto factor =
        1.0F / (norm + 1e-6F) * float(max_norm);         // as Python divides a number by a tensor
    if (!(factor >= 1.0F)) scale_small(params, factor);  // also when the norm is not a number
    return scalar(norm);
  }
  const auto grads = gradients(params);
  auto norm = norm_of(grads, norm_type);
  const auto factor = (norm + 1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  std::vector<torch::Tensor> same, other;
  for (const auto& grad : grads) (grad.device() == factor.device() ? same : other).push_back(grad);
  if (!same.empty()) at::_foreach_mul_(same, factor);
  for (auto& grad : other) grad.mul_(factor.to(grad.device()));
  return norm;
}

std::vector<torch::Tensor> all_parameters(const Optimizer& optimizer) {
  return optimizer.gradient_holders();
}

}  // namespace gradus
