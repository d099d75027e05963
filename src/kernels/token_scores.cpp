#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gradus/core/error.h>
#include <gradus/kernels/fused.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/logit_chunks.h"
#include "kernels/operators.h"

namespace gradus::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostScoredLogits = int64_t{1} << 27;  // 0.25 GiB in bfloat16

/// A language modeling head with padded classes.
struct Head {
  Head(const Tensor& given_weight, const Tensor& given_bias)
      : classes(given_weight.size(0)),
        weight(padded_rows(given_weight, padded_classes(classes))),
        bias(given_bias.defined() ? padded_rows(given_bias, weight.size(0)) : Tensor()) {}
  int64_t classes;
  Tensor weight, bias;
};

struct HeadGradients {
  Tensor hidden, weight, bias;
  bool any() const { return hidden.defined() || weight.defined() || bias.defined(); }
};

/// Which gradients are wanted, as memory for them in the padded size.
HeadGradients room_for(const Tensor& hidden, const Head& head, bool for_hidden, bool for_weight,
                       bool for_bias) {
  HeadGradients grads;
  if (for_hidden) grads.hidden = at::empty_like(hidden);
  if (for_weight)
    grads.weight = hidden.size(0) == 0 ? at::zeros_like(head.weight) : at::empty_like(head.weight);
  if (for_bias)
    grads.bias = at::zeros({head.weight.size(0)}, hidden.options().dtype(torch::kFloat));
  return grads;
}

struct Scoring {
  Tensor labels;
  double temperature = 1.0;
  int64_t ignore_index = -100;
  Tensor factors = {}, entropy_factors = {};  ///< Undefined: no gradients are formed.
  bool weighted = false;
};

Tensor chunk_of(const Tensor& values, int64_t first, int64_t count) {
  return values.defined() ? values.narrow(0, first, count) : values;
}

OptionalTensor optional_of(const Tensor& values) {
  return values.defined() ? OptionalTensor(values) : std::nullopt;
}

/// The scores (rows, kTokenScores) of all rows, and what of the gradients is defined in `grads`.
Tensor scores_in_chunks(const Tensor& hidden, const Head& head, const Scoring& scoring,
                        HeadGradients& grads) {
  const auto rows = hidden.size(0), columns = head.weight.size(0);
  auto scores = at::empty({rows, kTokenScores}, hidden.options().dtype(torch::kFloat));
  const auto step = rows_per_chunk(rows, columns, kMostScoredLogits);
  const auto buffer = at::empty({std::min(step, rows), columns}, hidden.options());
  for (int64_t first = 0; first < rows; first += step) {
    const auto count = std::min(step, rows - first);
    const auto part = hidden.narrow(0, first, count);
    auto logits = buffer.narrow(0, 0, count);
    if (head.bias.defined())
      at::addmm_out(logits, head.bias, part, head.weight.t());
    else
      at::mm_out(logits, part, head.weight.t());
    ops::token_scores_(logits, chunk_of(scoring.labels, first, count),
                       scores.narrow(0, first, count),
                       optional_of(chunk_of(scoring.factors, first, count)),
                       optional_of(chunk_of(scoring.entropy_factors, first, count)),
                       scoring.temperature, head.classes, scoring.ignore_index, scoring.weighted);
    if (grads.hidden.defined()) {
      auto to_hidden = grads.hidden.narrow(0, first, count);
      at::mm_out(to_hidden, logits, head.weight);
    }
    if (grads.weight.defined()) {
      if (first == 0)
        at::mm_out(grads.weight, logits.t(), part);
      else
        grads.weight.addmm_(logits.t(), part);
    }
    if (grads.bias.defined()) grads.bias.add_(logits.sum(0, /*keepdim=*/false, torch::kFloat));
  }
  return scores;
}

/// In the sizes and types of weight and bias.
void narrow_to(HeadGradients& grads, const Tensor& weight, const Tensor& bias) {
  if (grads.weight.defined()) grads.weight = grads.weight.narrow(0, 0, weight.size(0));
  if (grads.bias.defined())
    grads.bias = grads.bias.narrow(0, 0, weight.size(0)).to(bias.scalar_type());
}

/// The columns of a matrix of scores.
LinearTokenScores columns_of(const Tensor& scores) {
  const auto column = [&](TokenScore which) { return scores.select(1, which); };
  return {column(kLogProb), column(kEntropy), column(kMeanLogit), column(kIsTop1),
          column(kLogSumSqProbs)};
}

/// {log probabilities, entropies, all scores}; the last one has no gradient.
struct TokenScoresFunction : torch::autograd::Function<TokenScoresFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& given_hidden,
                               const Tensor& weight, const OptionalTensor& given_bias,
                               const Tensor& labels, double temperature, int64_t ignore_index) {
    const auto bias = given_bias.value_or(Tensor());
    const auto hidden = given_hidden.contiguous();
    HeadGradients none;
    const auto scores =
        scores_in_chunks(hidden, Head(weight, bias), {labels, temperature, ignore_index}, none);
    context->save_for_backward({hidden, weight, bias, labels});
    context->saved_data["temperature"] = temperature;
    context->saved_data["ignore_index"] = ignore_index;
    context->set_materialize_grads(false);
    context->mark_non_differentiable({scores});
    return {scores.select(1, kLogProb).clone(), scores.select(1, kEntropy).clone(), scores};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "gradus: linear_token_scores has no second derivative");
    const auto saved = context->get_saved_variables();
    const auto &hidden = saved[0], &weight = saved[1], &bias = saved[2];
    variable_list result(6);
    if (!grads[0].defined() && !grads[1].defined()) return result;
    const Head head(weight, bias);
    Scoring scoring{saved[3], context->saved_data["temperature"].toDouble(),
                    context->saved_data["ignore_index"].toInt()};
    scoring.factors = grads[0].defined() ? grads[0].contiguous() : at::zeros_like(grads[1]);
    if (grads[1].defined()) scoring.entropy_factors = grads[1].contiguous();
    auto formed = room_for(hidden, head, context->needs_input_grad(0), context->needs_input_grad(1),
                           bias.defined() && context->needs_input_grad(2));
    if (formed.any()) scores_in_chunks(hidden, head, scoring, formed);
    narrow_to(formed, weight, bias);
    result[0] = formed.hidden;
    result[1] = formed.weight;
    result[2] = formed.bias;
    return result;
  }
};

/// {loss, scores}. What of the gradients was formed is scaled in the backward pass.
struct TokenLossFunction : torch::autograd::Function<TokenLossFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& given_hidden,
                               const Tensor& weight, const OptionalTensor& given_bias,
                               const Tensor& labels, const Tensor& scale, bool weighted,
                               int64_t ignore_index, bool with_gradients) {
    const auto bias = given_bias.value_or(Tensor());
    const auto hidden = given_hidden.contiguous();
    const Head head(weight, bias);
    auto grads = room_for(hidden, head, with_gradients && given_hidden.requires_grad(),
                          with_gradients && weight.requires_grad(),
                          with_gradients && bias.defined() && bias.requires_grad());
    Scoring scoring{labels, 1.0, ignore_index};
    scoring.weighted = weighted;
    const auto factor = scale.reshape({1}).to(torch::kFloat).neg();
    if (grads.any()) scoring.factors = factor.expand({hidden.size(0)}).contiguous();
    const auto scores = scores_in_chunks(hidden, head, scoring, grads);
    narrow_to(grads, weight, bias);
    context->saved_data["hidden"] = grads.hidden;
    context->saved_data["weight"] = grads.weight;
    context->saved_data["bias"] = grads.bias;
    context->mark_non_differentiable({scores});
    const auto log_probs = scores.select(1, kLogProb);
    // Without a label both are 0, and 0 · e⁰ stays 0.
    const auto sum = (weighted ? log_probs * log_probs.exp() : log_probs).sum();
    return {sum * factor.squeeze(0), scores};
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
    result.resize(8);
    return result;
  }
};

}  // namespace

bool linear_token_scores_apply(const Tensor& hidden, const Tensor& weight, const Tensor& bias) {
  const auto type = hidden.scalar_type();
  return weight.scalar_type() == type && (!bias.defined() || bias.scalar_type() == type) &&
         takes_kernel_of_any_layout(hidden);
}

LinearTokenScores linear_token_scores(const Tensor& hidden, const Tensor& weight,
                                      const Tensor& bias, const Tensor& labels, double temperature,
                                      int64_t ignore_index) {
  const auto found = TokenScoresFunction::apply(hidden, weight, optional_of(bias),
                                                labels.contiguous(), temperature, ignore_index);
  auto scores = columns_of(found[2]);
  scores.log_probs = found[0];
  scores.entropy = found[1];
  return scores;
}

LinearTokenLoss linear_token_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                  const Tensor& labels, const Tensor& scale, bool weighted,
                                  int64_t ignore_index) {
  const auto found =
      TokenLossFunction::apply(hidden, weight, optional_of(bias), labels.contiguous(), scale,
                               weighted, ignore_index, at::GradMode::is_enabled());
  return {found[0], columns_of(found[1])};
}

}  // namespace gradus::kernels
