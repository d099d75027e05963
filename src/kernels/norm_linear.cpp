#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <gradus/kernels/fused.h>

#include "kernels/operators.h"
#include "kernels/second_derivative.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor as_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// {sum, projections…}, or the projections alone without a residual. Keeps the sum; what was
/// normalised is formed anew in the backward pass.
struct NormLinearFunction : torch::autograd::Function<NormLinearFunction> {
  static variable_list forward(AutogradContext* context, const OptionalTensor& residual,
                               const Tensor& x, const Tensor& norm_weight, at::TensorList weights,
                               at::TensorList biases, double eps) {
    const auto [sum, normed, rstd] = ops::add_rms_norm(residual, x, norm_weight, eps);
    variable_list saved = {residual ? sum : x, norm_weight, rstd}, result;
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    context->saved_data["eps"] = eps;
    context->saved_data["summed"] = residual.has_value();
    context->saved_data["biased"] = !biases.empty();
    context->set_materialize_grads(false);
    if (residual) result.push_back(sum);
    for (size_t i = 0; i < weights.size(); ++i)
      result.push_back(at::linear(normed, weights[i],
                                  biases.empty() ? OptionalTensor() : OptionalTensor(biases[i])));
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &sum = saved[0], &norm_weight = saved[1], &rstd = saved[2];
    const bool summed = context->saved_data["summed"].toBool(),
               biased = context->saved_data["biased"].toBool();
    TORCH_CHECK(
        !at::GradMode::is_enabled(),
        "gradus: add_rms_norm_linear has no second derivative; use kernels::set_form(Form::plain)");
    const size_t projections = saved.size() - 3, first_grad = summed ? 1 : 0;
    const auto normed = as_rows(std::get<1>(
        ops::add_rms_norm(std::nullopt, sum, norm_weight, context->saved_data["eps"].toDouble())));
    variable_list to_weights(projections), to_biases(biased ? projections : 0);
    Tensor to_normed;
    const size_t first_weight = summed ? 3 : 2;  // of the inputs that take gradients: (residual),
                                                 // x, weight of the norm, weights, biases
    for (size_t i = 0; i < projections; ++i) {
      if (!grads[first_grad + i].defined()) continue;
      const auto grad = as_rows(grads[first_grad + i]).contiguous();
      const auto& weight = saved[3 + i];
      to_normed = to_normed.defined() ? to_normed.addmm_(grad, weight) : at::mm(grad, weight);
      if (context->needs_input_grad(first_weight + i)) to_weights[i] = at::mm(grad.t(), normed);
      if (biased && context->needs_input_grad(first_weight + projections + i))
        to_biases[i] = ops::column_sum(grad);
    }
    const auto grad_sum =
        summed && grads[0].defined() ? OptionalTensor(grads[0].contiguous()) : std::nullopt;
    Tensor to_x = grad_sum.value_or(Tensor()), to_norm;
    if (to_normed.defined())
      std::tie(to_x, to_norm) =
          ops::add_rms_norm_backward(to_normed.view(sum.sizes()), grad_sum, sum, norm_weight, rstd);
    variable_list result = {summed ? to_x : Tensor(), to_x, to_norm};
    result.insert(result.end(), to_weights.begin(), to_weights.end());
    result.insert(result.end(), to_biases.begin(), to_biases.end());
    result.emplace_back();
    return result;
  }
};

bool all_like(const std::vector<Tensor>& tensors, const Tensor& x) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
    return tensor.defined() && tensor.scalar_type() == x.scalar_type() &&
           tensor.device() == x.device();
  });
}

}  // namespace

NormedProjections add_rms_norm_linear(const Tensor& residual, const Tensor& x,
                                      const Tensor& norm_weight, double eps,
                                      const std::vector<Tensor>& weights,
                                      const std::vector<Tensor>& biases) {
  if (all_like(weights, x) && all_like(biases, x) && takes_norm_kernel(residual, x, norm_weight)) {
    const auto given = residual.defined() ? OptionalTensor(residual) : std::nullopt;
    auto result = NormLinearFunction::apply(given, x, norm_weight, at::TensorList(weights),
                                            at::TensorList(biases), eps);
    if (!residual.defined()) return {x, result};
    return {result[0], {result.begin() + 1, result.end()}};
  }
  NormedProjections result;
  Tensor normed;
  if (residual.defined()) {
    const auto both = add_rms_norm(residual, x, norm_weight, eps);
    result.sum = both.sum;
    normed = both.normalised;
  } else {
    result.sum = x;
    normed = rms_norm(x, norm_weight, eps);
  }
  for (size_t i = 0; i < weights.size(); ++i)
    result.outputs.push_back(biases.empty() ? at::linear(normed, weights[i])
                                            : linear(normed, weights[i], biases[i]));
  return result;
}

}  // namespace gradus::kernels
