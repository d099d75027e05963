#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <gradus/kernels/fused.h>

#include "kernels/low_rank.h"
#include "kernels/nf4.h"
#include "kernels/operators.h"
#include "kernels/second_derivative.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor row_view(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// `turned`: the weight is (out, in).
Tensor plain_lora_linear(const variable_list& in, bool turned, double scale) {
  const auto base = Nf4Weight::is_one(in[1])
                        ? nf4_linear(in[0], in[1], in[2])
                        : at::linear(in[0], turned ? in[1] : in[1].t(),
                                     in[2].defined() ? OptionalTensor(in[2]) : std::nullopt);
  return base + at::linear(at::linear(in[0], in[3]), in[4]) * scale;
}

/// Keeps the input and its short rows x · aᵀ. The weight is kept as it is: a frozen one is read
/// where it lies, once in each direction.
struct LoraLinearFunction : torch::autograd::Function<LoraLinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const OptionalTensor& bias, const Tensor& a, const Tensor& b, double scale,
                        bool turned) {
    auto sizes = x.sizes().vec();
    sizes.back() = b.size(0);
    const auto rows = row_view(x);
    const auto matrix = dense(weight, x.scalar_type());
    auto y = at::linear(rows, turned ? matrix : matrix.t(), bias);
    const auto low = at::mm(rows, a.t());
    add_low_rank(y, low, b, scale);
    context->save_for_backward({x, weight, bias.value_or(Tensor()), a, b, low});
    context->saved_data["scale"] = scale;
    context->saved_data["turned"] = turned;
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &bias = saved[2], &a = saved[3], &b = saved[4];
    const double scale = context->saved_data["scale"].toDouble();
    const bool turned = context->saved_data["turned"].toBool(), biased = bias.defined();
    if (at::GradMode::is_enabled()) {
      const auto plain_form = [&](const variable_list& in) {
        return plain_lora_linear(in, turned, scale);
      };
      variable_list inputs = {x, weight, biased ? bias : weight.new_zeros({b.size(0)}), a, b};
      auto result = differentiable_backward(plain_form, inputs, grads[0]);
      return {result[0], result[1], biased ? result[2] : Tensor(), result[3], result[4],
              Tensor(),  Tensor()};
    }
    const auto grad = row_view(grads[0]).contiguous();
    // Inputs that take gradients: x, weight, (bias), a, b.
    const size_t place = biased ? 3 : 2;
    const auto to_low = low_rank_gradients(
        grad, row_view(x), saved[5], {a, b, scale},
        {.a = context->needs_input_grad(place), .b = context->needs_input_grad(place + 1)});
    Tensor to_x, to_weight, to_bias;
    if (context->needs_input_grad(0)) {
      const auto matrix = dense(weight, grad.scalar_type());
      to_x = at::mm(grad, turned ? matrix : matrix.t());
      to_x.addmm_(to_low.rows, a, 1, scale);
      to_x = to_x.view(x.sizes());
    }
    if (context->needs_input_grad(1))
      to_weight = turned ? at::mm(grad.t(), row_view(x)) : at::mm(row_view(x).t(), grad);
    if (biased && context->needs_input_grad(2)) to_bias = ops::column_sum(grad);
    return {to_x, to_weight, to_bias, to_low.a, to_low.b, Tensor(), Tensor()};
  }
};

}  // namespace

void add_low_rank(Tensor& y, const Tensor& rows, const Tensor& b, double scale) {
  y.addmm_(rows, b.t(), 1, scale);
}

LowRankGradients low_rank_gradients(const Tensor& grad, const Tensor& x, const Tensor& rows,
                                    const LowRank& low, const LowRankWanted& wanted) {
  LowRankGradients found;
  found.rows = at::mm(grad, low.b);
  if (wanted.a) found.a = at::mm(found.rows.t(), x).mul_(low.scale);
  if (wanted.b) found.b = at::mm(grad.t(), rows).mul_(low.scale);
  return found;
}

bool lora_linear_applies(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const LowRank& low) {
  const auto type = x.scalar_type();
  return takes_kernel_of_any_layout(x) && x.dim() >= 2 && weight.scalar_type() == type &&
         (!bias.defined() || bias.scalar_type() == type) && low.a.scalar_type() == type &&
         low.b.scalar_type() == type;
}

Tensor lora_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LowRank& low,
                   bool in_out) {
  if (!lora_linear_applies(x, weight, bias, low))
    return plain_lora_linear({x, weight, bias, low.a, low.b}, !in_out, low.scale);
  return LoraLinearFunction::apply(x, weight, bias.defined() ? OptionalTensor(bias) : std::nullopt,
                                   low.a, low.b, low.scale, !in_out);
}

}  // namespace gradus::kernels
