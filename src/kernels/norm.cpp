#include <ATen/ops/layer_norm.h>
#include <gradus/kernels/fused.h>

#include "kernels/operators.h"
#include "kernels/second_derivative.h"

namespace gradus::kernels {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr int64_t kWidestNorm = 8192;

bool norm_fits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!takes_kernel(x) || x.scalar_type() != weight.scalar_type() || !takes_kernel(weight))
    return false;
  if (bias.defined() && (bias.scalar_type() != x.scalar_type() || !takes_kernel(bias)))
    return false;
  const auto width = x.size(-1);
  return x.numel() > 0 && weight.dim() == 1 && weight.size(0) == width &&
         (!x.is_cuda() || (width % 8 == 0 && width <= kWidestNorm));
}

bool is_same_kind(const Tensor& residual, const Tensor& x) {
  return residual.scalar_type() == x.scalar_type() && residual.sizes() == x.sizes() &&
         residual.device() == x.device() && takes_kernel(residual);
}

Tensor contiguous_or_none(const Tensor& grad) { return grad.defined() ? grad.contiguous() : grad; }

OptionalTensor given(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

/// (residual or nothing, x) -> {sum, normalised} or {normalised}
struct AddLayerNormFunction : torch::autograd::Function<AddLayerNormFunction> {
  static variable_list forward(AutogradContext* context, const OptionalTensor& residual,
                               const Tensor& x, const Tensor& weight, const Tensor& bias,
                               double eps) {
    const auto [sum, out, mean, rstd] = ops::add_layer_norm(residual, x, weight, bias, eps);
    context->save_for_backward({residual ? sum : x, weight, bias, mean, rstd});
    context->saved_data["eps"] = eps;
    context->set_materialize_grads(false);
    return residual ? variable_list{sum, out} : variable_list{out};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto grad_sum = grads.size() == 2 ? contiguous_or_none(grads[0]) : Tensor(),
               grad_out = contiguous_or_none(grads.back());
    if (!grad_out.defined()) return {grad_sum, grad_sum, Tensor(), Tensor(), Tensor()};
    if (at::GradMode::is_enabled()) {
      const auto eps = context->saved_data["eps"].toDouble();
      const auto plain_norm = [&](const variable_list& in) {
        return at::layer_norm(in[0], {in[0].size(-1)}, in[1], in[2], eps);
      };
      auto result = differentiable_backward(plain_norm, {saved[0], saved[1], saved[2]}, grad_out);
      if (grad_sum.defined()) result[0] = result[0].defined() ? result[0] + grad_sum : grad_sum;
      return {grads.size() == 2 ? result[0] : Tensor(), result[0], result[1], result[2], Tensor()};
    }
    const auto [to_x, to_weight, to_bias] = ops::add_layer_norm_backward(
        grad_out, given(grad_sum), saved[0], saved[1], saved[3], saved[4]);
    return {grads.size() == 2 ? to_x : Tensor(), to_x, to_weight, to_bias, Tensor()};
  }
};

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* context, const OptionalTensor& residual,
                               const Tensor& x, const Tensor& weight, double eps) {
    const auto [sum, out, rstd] = ops::add_rms_norm(residual, x, weight, eps);
    context->save_for_backward({residual ? sum : x, weight, rstd});
    context->saved_data["eps"] = eps;
    context->set_materialize_grads(false);
    return residual ? variable_list{sum, out} : variable_list{out};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto grad_sum = grads.size() == 2 ? contiguous_or_none(grads[0]) : Tensor(),
               grad_out = contiguous_or_none(grads.back());
    if (!grad_out.defined()) return {grad_sum, grad_sum, Tensor(), Tensor()};
    if (at::GradMode::is_enabled()) {
      const auto eps = context->saved_data["eps"].toDouble();
      const auto plain_norm = [&](const variable_list& in) {
        const auto wide = in[0].to(torch::kFloat);
        return in[1] * (wide * (wide.square().mean(-1, /*keepdim=*/true) + eps).rsqrt())
                           .to(in[0].scalar_type());
      };
      auto result = differentiable_backward(plain_norm, {saved[0], saved[1]}, grad_out);
      if (grad_sum.defined()) result[0] = result[0].defined() ? result[0] + grad_sum : grad_sum;
      return {grads.size() == 2 ? result[0] : Tensor(), result[0], result[1], Tensor()};
    }
    const auto [to_x, to_weight] =
        ops::add_rms_norm_backward(grad_out, given(grad_sum), saved[0], saved[1], saved[2]);
    return {grads.size() == 2 ? to_x : Tensor(), to_x, to_weight, Tensor()};
  }
};

/// RMSNorm in ATen operations with its own backward: keeps x and one number per row.
struct PlainRmsNormFunction : torch::autograd::Function<PlainRmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        double eps) {
    const auto [none, out, rstd] = plain::add_rms_norm(std::nullopt, x, weight, eps);
    context->save_for_backward({x, weight, rstd});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const auto grad = grads[0].to(torch::kFloat);
    const auto normed = x.to(torch::kFloat) * rstd;
    Tensor to_x, to_weight;
    if (context->needs_input_grad(1))
      to_weight = (grad * normed).view({-1, x.size(-1)}).sum(0).to(weight.scalar_type());
    if (context->needs_input_grad(0)) {
      auto scaled = grad * weight.to(torch::kFloat);
      const auto projection = (scaled * normed).mean(-1, /*keepdim=*/true);
      to_x = scaled.sub_(normed * projection).mul_(rstd).to(x.scalar_type());
    }
    return {to_x, to_weight, Tensor()};
  }
};

}  // namespace

bool takes_norm_kernel(const Tensor& residual, const Tensor& x, const Tensor& weight) {
  return norm_fits(x, weight, {}) && (!residual.defined() || is_same_kind(residual, x));
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (norm_fits(x, weight, bias))
    return AddLayerNormFunction::apply(std::nullopt, x, weight, bias, eps)[0];
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

AddNorm add_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, double eps) {
  if (norm_fits(x, weight, bias) && is_same_kind(residual, x)) {
    auto both = AddLayerNormFunction::apply(OptionalTensor(residual), x, weight, bias, eps);
    return {both[0], both[1]};
  }
  const auto sum = residual + x;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  // The kernel reads rows without gaps: heads that are part of a wider matrix are copied.
  const auto whole = x.is_cuda() ? x.contiguous() : x;
  if (norm_fits(whole, weight, {}))
    return AddRmsNormFunction::apply(std::nullopt, whole, weight, eps)[0];
  return PlainRmsNormFunction::apply(x, weight, eps);
}

AddNorm add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, double eps) {
  if (norm_fits(x, weight, {}) && is_same_kind(residual, x)) {
    auto both = AddRmsNormFunction::apply(OptionalTensor(residual), x, weight, eps);
    return {both[0], both[1]};
  }
  const auto sum = residual + x;
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace gradus::kernels
