#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/zeros.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/optimizer_kernels.h>

#include "kernels/operators.h"

namespace gradus::kernels {

namespace {

void bump_versions(const std::vector<Tensor>& tensors) {
  for (const auto& tensor : tensors)
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

void adamw_(const AdamWTensors& tensors, const AdamWScalars& scalars,
            const AdamWSettings& settings) {
  if (tensors.masters.empty()) return;
  const auto run = current_form() == Form::plain ? plain::adamw_ : ops::adamw_;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    run(tensors.masters, tensors.weights, tensors.grads, tensors.exp_avg, tensors.exp_avg_sq,
        scalars.lr, scalars.step, scalars.clip_coef, scalars.grad_scale, scalars.found_inf,
        settings.beta1, settings.beta2, settings.eps, settings.weight_decay, settings.maximize);
  }
  bump_versions(tensors.masters);
  bump_versions(tensors.weights);
}

Tensor grad_norm(const std::vector<Tensor>& grads) {
  if (grads.empty()) return at::zeros({}, torch::kFloat);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return current_form() == Form::plain ? plain::grad_norm(grads) : ops::grad_norm(grads);
}

Tensor clip_coefficient(const Tensor& norm, double max_norm) {
  torch::NoGradGuard no_grad;
  return (norm + 1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
}

void scale_(const std::vector<Tensor>& tensors, const Tensor& factor) {
  if (tensors.empty()) return;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    current_form() == Form::plain ? plain::scale_(tensors, factor) : ops::scale_(tensors, factor);
  }
  bump_versions(tensors);
}

void copy_(const std::vector<Tensor>& destinations, const std::vector<Tensor>& sources) {
  if (destinations.empty()) return;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::_foreach_copy_(destinations, sources);
  }
  bump_versions(destinations);
}

}  // namespace gradus::kernels
