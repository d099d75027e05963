#include "trainers/token_scores.h"

#include <ATen/ops/logsumexp.h>

namespace gradus {

using torch::Tensor;

TokenScores score_tokens(const Tensor& logits, const Tensor& labels,
                         const TokenScoreOptions& options) {
  const auto length = labels.size(1) - 1;
  const auto targets = labels.narrow(1, 1, length);
  auto scaled = logits.narrow(1, 0, length).to(torch::kFloat);
  if (options.temperature != 1) scaled = scaled / options.temperature;
  TokenScores scores;
  scores.mask = targets.ne(-100);
  const auto without_label = scores.mask.logical_not();
  const auto places = targets.clamp_min(0).unsqueeze(-1);
  const auto log_z = at::logsumexp(scaled, -1);
  scores.log_probs = (scaled.gather(-1, places).squeeze(-1) - log_z).masked_fill(without_label, 0);

  const torch::NoGradGuard no_grad;
  if (options.is_top1) scores.is_top1 = scaled.argmax(-1).eq(targets).logical_and(scores.mask);
  if (options.mean_logits) scores.mean_logits = scaled.mean(-1).masked_fill(without_label, 0);
  if (!options.entropy && !options.log_sum_sq_probs) return scores;
  const auto log_p = scaled - log_z.unsqueeze(-1);
  if (options.entropy)
    scores.entropy = (log_p.exp() * log_p).sum(-1).neg().masked_fill(without_label, 0);
  if (options.log_sum_sq_probs)
    scores.log_sum_sq_probs = at::logsumexp(2 * log_p, -1).masked_fill(without_label, 0);
  return scores;
}

}  // namespace gradus
