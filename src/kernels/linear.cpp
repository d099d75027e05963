#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <gradus/kernels/fused.h>

#include "kernels/fp8.h"
#include "kernels/nf4.h"
#include "kernels/operators.h"
#include "kernels/second_derivative.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor flat_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

Tensor plain_linear_in_out(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  return at::addmm(bias, flat_rows(x), weight).view(sizes);
}

/// `turned`: the weight is (out, in).
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, bool turned) {
    context->save_for_backward({x, weight, bias});
    context->saved_data["turned"] = turned;
    return plain_linear_in_out(x, turned ? weight.t() : weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const bool turned = context->saved_data["turned"].toBool();
    if (at::GradMode::is_enabled()) {
      const auto plain_form = [&](const variable_list& in) {
        return plain_linear_in_out(in[0], turned ? in[1].t() : in[1], in[2]);
      };
      auto result = differentiable_backward(plain_form, saved, grads[0]);
      return {result[0], result[1], result[2], Tensor()};
    }
    const auto grad = flat_rows(grads[0]).contiguous();
    Tensor to_x, to_weight, to_bias;
    if (context->needs_input_grad(0))
      to_x = at::mm(grad, turned ? weight : weight.t()).view(x.sizes());
    if (context->needs_input_grad(1))
      to_weight = turned ? at::mm(grad.t(), flat_rows(x)) : at::mm(flat_rows(x).t(), grad);
    if (context->needs_input_grad(2)) to_bias = ops::column_sum(grad);
    return {to_x, to_weight, to_bias, Tensor()};
  }
};

std::vector<Tensor> given_biases(const Tensor& bias) {
  return bias.defined() ? std::vector<Tensor>{bias} : std::vector<Tensor>{};
}

bool linear_fits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return takes_kernel(x) && x.dim() >= 2 && x.scalar_type() == weight.scalar_type() &&
         x.scalar_type() == bias.scalar_type();
}

/// Views of the packed tensor; the backward pass packs their gradients.
struct SplitHeadsFunction : torch::autograd::Function<SplitHeadsFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& packed, int64_t heads) {
    context->saved_data["sizes"] = packed.sizes().vec();
    return packed.view({packed.size(0), packed.size(1), 3, heads, -1}).unbind(2);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto sizes = context->saved_data["sizes"].toIntVector();
    const bool once = !at::GradMode::is_enabled() && readable(grads[0]) && readable(grads[1]) &&
                      readable(grads[2]);
    const auto packed = once ? ops::pack_heads(grads[0], grads[1], grads[2])
                             : plain::pack_heads(grads[0], grads[1], grads[2]);
    return {packed.view(sizes), Tensor()};
  }

  static bool readable(const Tensor& x) {
    if (!x.is_cuda()) return true;
    return x.stride(3) == 1 && x.stride(0) % 8 == 0 && x.stride(1) % 8 == 0 &&
           x.stride(2) % 8 == 0 && x.size(3) % 8 == 0 &&
           reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (takes_fp8(x, weight)) return fp8_linear(x, {weight}, given_biases(bias))[0];
  if (Nf4Weight::is_one(weight)) return nf4_linear(x, weight, bias);
  if (!bias.defined()) return at::linear(x, weight);
  return linear_fits(x, weight, bias) ? LinearFunction::apply(x, weight, bias, true)
                                      : at::linear(x, weight, bias);
}

Tensor linear_in_out(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (takes_fp8(x, weight, /*in_out=*/true))
    return fp8_linear(x, {weight}, {bias}, /*in_out=*/true)[0];
  return linear_fits(x, weight, bias) ? LinearFunction::apply(x, weight, bias, false)
                                      : plain_linear_in_out(x, weight, bias);
}

Heads split_heads(const Tensor& packed, int64_t heads) {
  if (takes_kernel(packed)) {
    auto parts = SplitHeadsFunction::apply(packed, heads);
    return {parts[0], parts[1], parts[2]};
  }
  auto parts = packed.view({packed.size(0), packed.size(1), 3, heads, -1}).unbind(2);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace gradus::kernels
