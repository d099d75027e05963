#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
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

bool gates_fit(const Tensor& gate, const Tensor& up) {
  return gate.scalar_type() == up.scalar_type() && gate.sizes() == up.sizes() &&
         takes_kernel(gate) && takes_kernel(up) && (!gate.is_cuda() || gate.numel() % 8 == 0);
}

Tensor differentiable_swiglu(const variable_list& in) { return at::silu(in[0]) * in[1]; }

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up,
                        bool kernel) {
    context->save_for_backward({gate, up});
    context->saved_data["kernel"] = kernel;
    return kernel ? ops::swiglu(gate, up) : plain::swiglu(gate, up);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      auto result = differentiable_backward(differentiable_swiglu, saved, grads[0]);
      return {result[0], result[1], Tensor()};
    }
    const bool kernel = context->saved_data["kernel"].toBool();
    const auto [to_gate, to_up, none] =
        kernel ? ops::swiglu_backward(grads[0].contiguous(), saved[0], saved[1], false)
               : plain::swiglu_backward(grads[0], saved[0], saved[1], false);
    return {to_gate, to_up, Tensor()};
  }
};

struct SwigluLinearFunction : torch::autograd::Function<SwigluLinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up,
                        const Tensor& weight, const OptionalTensor& bias) {
    context->save_for_backward({gate, up, weight});
    context->saved_data["biased"] = bias.has_value();
    return at::linear(ops::swiglu(gate, up), weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1], &weight = saved[2];
    const bool biased = context->saved_data["biased"].toBool();
    const auto grad = rows_of(grads[0]).contiguous();
    if (at::GradMode::is_enabled()) {
      const auto plain_form = [](const variable_list& in) {
        return at::linear(differentiable_swiglu(in), in[2]);
      };
      auto result = differentiable_backward(plain_form, {gate, up, weight}, grads[0]);
      return {result[0], result[1], result[2], biased ? grad.sum(0) : Tensor()};
    }
    const auto to_product = at::mm(grad, weight).view(gate.sizes());
    const bool for_weight = context->needs_input_grad(2);
    const auto [to_gate, to_up, product] = ops::swiglu_backward(to_product, gate, up, for_weight);
    const auto to_weight = for_weight ? at::mm(grad.t(), rows_of(product)) : Tensor();
    return {to_gate, to_up, to_weight,
            biased && context->needs_input_grad(3) ? ops::column_sum(grad) : Tensor()};
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  if (gate.scalar_type() != up.scalar_type()) return at::silu(gate) * up;
  return SwigluFunction::apply(gate, up, gates_fit(gate, up));
}

Tensor swiglu_linear(const Tensor& gate, const Tensor& up, const Tensor& weight, const Tensor& bias,
                     const LowRank& low) {
  const auto given_bias = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  const bool fits = gates_fit(gate, up) && weight.scalar_type() == gate.scalar_type();
  if (low.a.defined())
    return fits && lora_linear_applies(gate, weight, bias, low)
               ? swiglu_lora_linear(gate, up, weight, bias, low)
               : lora_linear(swiglu(gate, up), weight, bias, low);
  if (gate.sizes() == up.sizes() && takes_fp8(gate, weight))
    return fp8_swiglu_linear(gate, up, weight, bias);
  if (Nf4Weight::is_one(weight)) return nf4_linear(swiglu(gate, up), weight, bias);
  if (fits) return SwigluLinearFunction::apply(gate, up, weight, given_bias);
  return at::linear(swiglu(gate, up), weight, given_bias);
}

}  // namespace gradus::kernels
