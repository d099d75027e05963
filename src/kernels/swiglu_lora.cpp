#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/low_rank.h"
#include "kernels/nf4.h"
#include "kernels/operators.h"
#include "kernels/single_use.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGatedRows = 2048;  // enough for efficient products, little memory

Tensor gated_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// Calls `work(first, count)` for parts of `rows` rows.
template <typename Work>
void in_parts(int64_t rows, const Work& work) {
  for (int64_t first = 0; first < rows; first += kGatedRows)
    work(first, std::min(kGatedRows, rows - first));
}

/// A part of the rows at a time, so that silu(gate) · up is never held as a whole. In a graph that
/// is used once the gradients of gate and up take their memory.
struct SwigluLoraFunction : torch::autograd::Function<SwigluLoraFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up,
                        const Tensor& weight, const OptionalTensor& bias, const Tensor& a,
                        const Tensor& b, double scale) {
    const auto gates = gated_rows(gate), ups = gated_rows(up);
    const auto rows = gates.size(0);
    auto y = at::empty({rows, weight.size(0)}, gate.options());
    const auto low = at::empty({rows, a.size(0)}, gate.options());
    const auto matrix = dense(weight, gate.scalar_type());
    in_parts(rows, [&](int64_t first, int64_t count) {
      const auto part = [&](const Tensor& x) { return x.narrow(0, first, count); };
      const auto product = ops::swiglu(part(gates), part(ups));
      auto out = part(y), short_rows = part(low);
      if (bias)
        at::addmm_out(out, *bias, product, matrix.t());
      else
        at::mm_out(out, product, matrix.t());
      at::mm_out(short_rows, product, a.t());
      add_low_rank(out, short_rows, b, scale);
    });
    context->save_for_backward({gate, up, weight, a, b, low});
    context->saved_data["scale"] = scale;
    context->saved_data["biased"] = bias.has_value();
    context->saved_data["once"] = SingleUse::is_on();
    auto sizes = gate.sizes().vec();
    sizes.back() = weight.size(0);
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "gradus: swiglu_linear with an adapter has no second derivative; use "
                "kernels::set_form(Form::plain)");
    const auto saved = context->get_saved_variables();
    const auto &weight = saved[2], &a = saved[3], &b = saved[4], &low = saved[5];
    const double scale = context->saved_data["scale"].toDouble();
    const bool once = context->saved_data["once"].toBool(),
               biased = context->saved_data["biased"].toBool();
    const auto to_gate = once ? saved[0].detach() : saved[0].detach().clone(),
               to_up = once ? saved[1].detach() : saved[1].detach().clone();
    const auto gates = gated_rows(to_gate), ups = gated_rows(to_up),
               grad = gated_rows(grads[0]).contiguous();
    // Inputs that take gradients: gate, up, weight, (bias), a, b.
    const size_t place = biased ? 4 : 3;
    const bool for_a = context->needs_input_grad(place),
               for_b = context->needs_input_grad(place + 1),
               for_weight = context->needs_input_grad(2);
    auto to_a = for_a ? at::zeros(a.sizes(), a.options().dtype(torch::kFloat)) : Tensor();
    auto to_weight = for_weight ? at::zeros_like(weight) : Tensor();
    const auto matrix = dense(weight, grad.scalar_type());
    in_parts(grad.size(0), [&](int64_t first, int64_t count) {
      const auto part = [&](const Tensor& x) { return x.narrow(0, first, count); };
      const auto d = part(grad), short_grads = at::mm(d, b);
      if (for_a || for_weight) {
        const auto product = ops::swiglu(part(gates), part(ups));
        if (for_a) to_a.add_(at::mm(short_grads.t(), product), scale);
        if (for_weight) to_weight.addmm_(d.t(), product);
      }
      auto to_product = at::mm(d, matrix);
      to_product.addmm_(short_grads, a, 1, scale);
      ops::swiglu_backward_(to_product, part(gates), part(ups));
    });
    return {to_gate,
            to_up,
            to_weight,
            biased && context->needs_input_grad(3) ? ops::column_sum(grad) : Tensor(),
            for_a ? to_a.to(a.scalar_type()) : Tensor(),
            for_b ? at::mm(grad.t(), low).mul_(scale) : Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor swiglu_lora_linear(const Tensor& gate, const Tensor& up, const Tensor& weight,
                          const Tensor& bias, const LowRank& low) {
  return SwigluLoraFunction::apply(gate, up, weight,
                                   bias.defined() ? OptionalTensor(bias) : std::nullopt, low.a,
                                   low.b, low.scale);
}

}  // namespace gradus::kernels
