#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gradus/core/error.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/fused.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/logit_chunks.h"
#include "kernels/operators.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Gradients {
  Tensor hidden, weight, bias;
};

/// The loss of all rows, and what of the gradients is defined in `grads` (in the padded size).
Tensor loss_in_chunks(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                      const Tensor& labels, const Tensor& scale, int64_t classes,
                      int64_t ignore_index, Gradients& grads) {
  const auto rows = hidden.size(0), columns = weight.size(0);
  auto losses = at::empty({rows}, hidden.options().dtype(torch::kFloat));
  const bool gradient = grads.hidden.defined() || grads.weight.defined() || grads.bias.defined();
  const auto step = rows == 0 ? 1 : rows_per_chunk(rows, columns);
  const auto buffer = at::empty({std::min(step, rows), columns}, hidden.options());
  for (int64_t first = 0; first < rows; first += step) {
    const auto count = std::min(step, rows - first);
    const auto part = hidden.narrow(0, first, count);
    auto logits = buffer.narrow(0, 0, count);
    if (bias.defined())
      at::addmm_out(logits, bias, part, weight.t());
    else
      at::mm_out(logits, part, weight.t());
    ops::cross_entropy_(logits, labels.narrow(0, first, count), scale,
                        losses.narrow(0, first, count), classes, ignore_index, gradient);
    if (grads.hidden.defined()) {
      auto to_hidden = grads.hidden.narrow(0, first, count);
      at::mm_out(to_hidden, logits, weight);
    }
    if (grads.weight.defined()) {
      if (first == 0)
        at::mm_out(grads.weight, logits.t(), part);
      else
        grads.weight.addmm_(logits.t(), part);
    }
    if (grads.bias.defined()) grads.bias.add_(logits.sum(0, /*keepdim=*/false, torch::kFloat));
  }
  return losses.sum().mul_(scale);
}

struct LossFunction : torch::autograd::Function<LossFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& given_hidden,
                        const Tensor& given_weight, const OptionalTensor& given_bias,
                        const Tensor& labels, const Tensor& scale, int64_t ignore_index,
                        bool with_gradients) {
    const auto classes = given_weight.size(0), padded = padded_classes(classes);
    const auto hidden = given_hidden.contiguous(), weight = padded_rows(given_weight, padded);
    const auto bias = given_bias ? padded_rows(*given_bias, padded) : Tensor();
    Gradients grads;
    if (with_gradients && given_hidden.requires_grad()) grads.hidden = at::empty_like(hidden);
    if (with_gradients && given_weight.requires_grad())
      grads.weight = hidden.size(0) == 0 ? at::zeros_like(weight) : at::empty_like(weight);
    if (with_gradients && given_bias && given_bias->requires_grad())
      grads.bias = at::zeros({padded}, hidden.options().dtype(torch::kFloat));
    auto loss = loss_in_chunks(hidden, weight, bias, labels.contiguous(), scale.reshape({}),
                               classes, ignore_index, grads);
    context->saved_data["hidden"] = grads.hidden;
    context->saved_data["weight"] =
        grads.weight.defined() ? grads.weight.narrow(0, 0, classes) : Tensor();
    context->saved_data["bias"] =
        grads.bias.defined() ? grads.bias.narrow(0, 0, classes).to(given_bias->scalar_type())
                             : Tensor();
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    if (context->saved_data.empty())
      throw Error("G-MODEL-12", ErrorKind::training,
                  "backward ran a second time through a loss whose logits were not kept",
                  "Run the model with ForwardOptions::need_logits to use its loss more than once.");
    variable_list result;
    std::vector<Tensor> formed;
    for (const auto* name : {"hidden", "weight", "bias"}) {
      result.push_back(context->saved_data[name].toTensor());
      if (result.back().defined()) formed.push_back(result.back());
    }
    context->saved_data.clear();
    if (!formed.empty()) ops::scale_(formed, grads[0].to(torch::kFloat).reshape({}));
    result.resize(7);
    return result;
  }
};

}  // namespace

bool linear_cross_entropy_applies(const Tensor& hidden, const Tensor& weight, const Tensor& bias) {
  if (hidden.scalar_type() != torch::kBFloat16 || weight.scalar_type() != torch::kBFloat16)
    return false;
  if (bias.defined() && bias.scalar_type() != torch::kBFloat16) return false;
  return hidden.dim() == 2 && takes_kernel_of_any_layout(hidden);
}

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                            const Tensor& labels, const Tensor& scale, int64_t ignore_index) {
  const auto given_bias = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  return LossFunction::apply(hidden, weight, given_bias, labels, scale, ignore_index,
                             at::GradMode::is_enabled());
}

}  // namespace gradus::kernels
