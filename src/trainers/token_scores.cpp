#include "trainers/token_scores.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>

namespace gradus {

using torch::Tensor;

TokenScores score_tokens(const Tensor& logits, const Tensor& labels,
                         const TokenScoreOptions& options) {
  // Every position is scored, the last one without a label: a part of the logits would be copied.
  const auto length = labels.size(1) - 1;
  const auto none = labels.new_full({labels.size(0), 1}, -100);
  const auto targets = at::cat({labels.narrow(1, 1, length), none}, 1);
  const auto mask = targets.ne(-100), without_label = mask.logical_not();
  const auto shown = [&](const Tensor& values) { return values.narrow(1, 0, length); };
  const auto labelled = [&](const Tensor& values) {
    return shown(values.masked_fill(without_label, 0));
  };
  const auto scaled =
      options.temperature != 1 ? logits.to(torch::kFloat) / options.temperature : logits;
  const auto log_p = at::log_softmax(scaled, -1, torch::kFloat);
  TokenScores scores;
  scores.mask = shown(mask);
  scores.log_probs = labelled(log_p.gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1));

  const torch::NoGradGuard no_grad;
  if (options.is_top1) scores.is_top1 = shown(scaled.argmax(-1).eq(targets).logical_and(mask));
  if (options.mean_logits) scores.mean_logits = labelled(scaled.mean(-1, false, torch::kFloat));
  if (options.entropy) scores.entropy = labelled(log_p.exp().mul_(log_p).sum(-1).neg_());
  if (options.log_sum_sq_probs) scores.log_sum_sq_probs = labelled(at::logsumexp(2 * log_p, -1));
  return scores;
}

TokenScores token_scores_in(const ModelOutput& outputs, const Tensor& labels,
                            const TokenScoreOptions& options) {
  if (!outputs.contains("token_log_probs")) return score_tokens(outputs["logits"], labels, options);
  const auto length = labels.size(1) - 1;
  const auto shown = [&](const Tensor& values) { return values.narrow(1, 0, length); };
  const auto fact = [&](int64_t which) {
    return shown(outputs["token_facts"].select(-1, which).detach());
  };
  TokenScores scores;
  scores.mask = labels.narrow(1, 1, length).ne(-100);
  scores.log_probs = shown(outputs["token_log_probs"]);
  if (options.entropy) scores.entropy = shown(outputs["token_entropy"].detach());
  if (options.mean_logits) scores.mean_logits = fact(0);
  if (options.is_top1) scores.is_top1 = fact(1).to(torch::kBool);
  if (options.log_sum_sq_probs) scores.log_sum_sq_probs = fact(2);
  return scores;
}

}  // namespace gradus
