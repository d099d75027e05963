#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <gradus/kernels/fused.h>

#include "kernels/fp8.h"
#include "kernels/low_rank.h"
#include "kernels/nf4.h"
#include "kernels/operators.h"
#include "kernels/second_derivative.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor as_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// {sum, projections…}, or the projections alone without a residual. Keeps the sum; what was
/// normalised is formed anew in the backward pass. `as` and `bs` are the matrices of adapters, of
/// the projections that `adapted` names.
struct NormLinearFunction : torch::autograd::Function<NormLinearFunction> {
  static variable_list forward(AutogradContext* context, const OptionalTensor& residual,
                               const Tensor& x, const Tensor& norm_weight, at::TensorList weights,
                               at::TensorList biases, at::TensorList as, at::TensorList bs,
                               const std::vector<int64_t>& adapted,
                               const std::vector<double>& scales, double eps) {
    const auto [sum, normed, rstd] = ops::add_rms_norm(residual, x, norm_weight, eps);
    variable_list saved = {residual ? sum : x, norm_weight, rstd}, result;
    saved.insert(saved.end(), weights.begin(), weights.end());
    saved.insert(saved.end(), as.begin(), as.end());
    saved.insert(saved.end(), bs.begin(), bs.end());
    context->saved_data["eps"] = eps;
    context->saved_data["summed"] = residual.has_value();
    context->saved_data["biased"] = !biases.empty();
    context->saved_data["adapted"] = adapted;
    context->saved_data["scales"] = scales;
    context->set_materialize_grads(false);
    if (residual) result.push_back(sum);
    for (size_t i = 0; i < weights.size(); ++i)
      result.push_back(at::linear(normed, dense(weights[i], x.scalar_type()),
                                  biases.empty() ? OptionalTensor() : OptionalTensor(biases[i])));
    for (size_t i = 0; i < adapted.size(); ++i) {
      auto output = as_rows(result[size_t(adapted[i]) + (residual ? 1 : 0)]);
      saved.push_back(at::mm(as_rows(normed), as[i].t()));
      add_low_rank(output, saved.back(), bs[i], scales[i]);
    }
    context->save_for_backward(saved);
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
    const auto adapted = context->saved_data["adapted"].toIntVector();
    const auto scales = context->saved_data["scales"].toDoubleVector();
    const size_t lows = adapted.size(), projections = saved.size() - 3 - 3 * lows,
                 first_grad = summed ? 1 : 0;
    const auto normed = as_rows(std::get<1>(
        ops::add_rms_norm(std::nullopt, sum, norm_weight, context->saved_data["eps"].toDouble())));
    variable_list to_weights(projections), to_biases(biased ? projections : 0), to_as(lows),
        to_bs(lows);
    Tensor to_normed;
    const auto add = [&](const Tensor& grad, const Tensor& weight, double scale) {
      to_normed = to_normed.defined() ? to_normed.addmm_(grad, weight, 1, scale)
                                      : at::mm(grad, weight);  // the first one has scale 1
    };
    // Of the inputs that take gradients: (residual), x, weight of the norm, weights, biases, as, bs
    const size_t first_weight = summed ? 3 : 2;
    const size_t first_low = first_weight + projections * (biased ? 2 : 1);
    variable_list by_projection(projections);
    for (size_t i = 0; i < projections; ++i) {
      if (!grads[first_grad + i].defined()) continue;
      const auto grad = by_projection[i] = as_rows(grads[first_grad + i]).contiguous();
      add(grad, dense(saved[3 + i], grad.scalar_type()), 1);
      if (context->needs_input_grad(first_weight + i)) to_weights[i] = at::mm(grad.t(), normed);
      if (biased && context->needs_input_grad(first_weight + projections + i))
        to_biases[i] = ops::column_sum(grad);
    }
    for (size_t i = 0; i < lows; ++i) {
      const auto& grad = by_projection[size_t(adapted[i])];
      if (!grad.defined()) continue;
      const auto first = 3 + projections + i;
      const LowRank low{saved[first], saved[first + lows], scales[i]};
      const auto found = low_rank_gradients(grad, normed, saved[first + 2 * lows], low,
                                            {.a = context->needs_input_grad(first_low + i),
                                             .b = context->needs_input_grad(first_low + lows + i)});
      add(found.rows, low.a, low.scale);
      to_as[i] = found.a;
      to_bs[i] = found.b;
    }
    const auto grad_sum =
        summed && grads[0].defined() ? OptionalTensor(grads[0].contiguous()) : std::nullopt;
    Tensor to_x = grad_sum.value_or(Tensor()), to_norm;
    if (to_normed.defined())
      std::tie(to_x, to_norm) =
          ops::add_rms_norm_backward(to_normed.view(sum.sizes()), grad_sum, sum, norm_weight, rstd);
    variable_list result = {summed ? to_x : Tensor(), to_x, to_norm};
    for (const auto& more : {to_weights, to_biases, to_as, to_bs})
      result.insert(result.end(), more.begin(), more.end());
    result.resize(result.size() + 3);
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
                                      const std::vector<Tensor>& biases,
                                      const std::vector<LowRank>& lows) {
  std::vector<Tensor> as, bs;
  std::vector<int64_t> adapted;
  std::vector<double> scales;
  for (size_t i = 0; i < lows.size(); ++i) {
    if (!lows[i].a.defined()) continue;
    adapted.push_back(int64_t(i));
    as.push_back(lows[i].a);
    bs.push_back(lows[i].b);
    scales.push_back(lows[i].scale);
  }
  const bool in_fp8 = adapted.empty() && takes_fp8(x, weights);
  if (!in_fp8 && all_like(weights, x) && all_like(biases, x) && all_like(as, x) &&
      all_like(bs, x) && takes_norm_kernel(residual, x, norm_weight)) {
    const auto given = residual.defined() ? OptionalTensor(residual) : std::nullopt;
    auto result = NormLinearFunction::apply(given, x, norm_weight, at::TensorList(weights),
                                            at::TensorList(biases), at::TensorList(as),
                                            at::TensorList(bs), adapted, scales, eps);
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
  if (in_fp8) {
    result.outputs = fp8_linear(normed, weights, biases);
    return result;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto bias = biases.empty() ? Tensor() : biases[i];
    result.outputs.push_back(i < lows.size() && lows[i].a.defined()
                                 ? lora_linear(normed, weights[i], bias, lows[i])
                                 : linear(normed, weights[i], bias));
  }
  return result;
}

}  // namespace gradus::kernels
