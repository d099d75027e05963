#include "trainers/dpo_loss.h"

#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace gradus {

using at::log_sigmoid;
using torch::Tensor;

namespace {

constexpr std::string_view kPreferenceLosses[] = {
    "sigmoid",  "hinge",    "ipo",       "exo_pair", "nca_pair",
    "robust",   "bco_pair", "sppo_hard", "aot",      "aot_unpaired",
    "apo_zero", "apo_down", "discopop",  "sft",      "sigmoid_norm"};
constexpr std::string_view kDivergenceLosses[] = {"sigmoid",  "sigmoid_norm", "hinge",    "ipo",
                                                  "exo_pair", "robust",       "discopop", "sft"};

/// f' of the divergence at the ratio whose logarithm is given.
Tensor divergence_score(const Tensor& log_ratio, const DPOConfig& args) {
  if (args.f_divergence_type == "forward_kl") return 1 - (-log_ratio).exp();
  if (args.f_divergence_type == "js_divergence") return std::log(2.0) + log_sigmoid(log_ratio);
  const auto exponent = args.f_alpha_divergence_coef - 1.0;
  if (args.f_divergence_type != "alpha_divergence" || std::abs(exponent) < 1e-6) return log_ratio;
  constexpr double largest = 80.0;  // exp stays a float32
  return ((exponent * log_ratio).clamp_max(largest).exp() - 1.0) / exponent;
}

/// One pair's values, as the losses name them.
struct Pair {
  Tensor chosen_ratio, rejected_ratio;  ///< log policy - log reference
  Tensor chosen_score, rejected_score;  ///< the same under the divergence
  Tensor margin;                        ///< difference of the scores
};

using LossFunction = Tensor (*)(const Pair&, const PairLogProbs&, const DPOConfig&);

Tensor sigmoid_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return -log_sigmoid(args.beta * p.margin);
}

Tensor hinge_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return torch::relu(1 - args.beta * p.margin);
}

Tensor margin_per_token(const Pair& p, const PairLogProbs& given) {
  return p.chosen_score / given.chosen_tokens - p.rejected_score / given.rejected_tokens;
}

Tensor ipo_loss(const Pair& p, const PairLogProbs& given, const DPOConfig& args) {
  return (margin_per_token(p, given) - 1 / (2 * args.beta)).square();
}

Tensor sigmoid_norm_loss(const Pair& p, const PairLogProbs& given, const DPOConfig& args) {
  return -log_sigmoid(args.beta * margin_per_token(p, given));
}

Tensor exo_pair_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  const auto x = args.beta * p.margin;
  const auto wrong = double(float(args.label_smoothing));
  return torch::sigmoid(x) * (log_sigmoid(x) - std::log1p(-wrong)) +
         torch::sigmoid(-x) * (log_sigmoid(-x) - std::log(wrong));
}

Tensor nca_pair_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  const auto chosen = args.beta * p.chosen_ratio, rejected = args.beta * p.rejected_ratio;
  return -log_sigmoid(chosen) - 0.5 * log_sigmoid(-chosen) - 0.5 * log_sigmoid(-rejected);
}

Tensor robust_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  const auto wrong = args.label_smoothing;
  const auto right = -(1 - wrong) * log_sigmoid(args.beta * p.margin);
  const auto flipped = -wrong * log_sigmoid(-args.beta * p.margin);
  return (right - flipped) / (1 - 2 * wrong);
}

Tensor bco_pair_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return -log_sigmoid(args.beta * p.chosen_ratio) - log_sigmoid(-args.beta * p.rejected_ratio);
}

Tensor sppo_hard_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return (p.chosen_ratio - 0.5 / args.beta).square() +
         (p.rejected_ratio + 0.5 / args.beta).square();
}

Tensor sorted(const Tensor& values) { return std::get<0>(at::sort(values, 0)); }

Tensor smoothed(const Tensor& margin, const DPOConfig& args) {
  return -log_sigmoid(args.beta * margin) * (1 - args.label_smoothing) -
         log_sigmoid(-args.beta * margin) * args.label_smoothing;
}

Tensor aot_loss(const Pair&, const PairLogProbs& given, const DPOConfig& args) {
  return smoothed(
      sorted(given.chosen - given.rejected) - sorted(given.ref_chosen - given.ref_rejected), args);
}

Tensor aot_unpaired_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return smoothed(sorted(p.chosen_ratio) - sorted(p.rejected_ratio), args);
}

Tensor apo_zero_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return 1 - torch::sigmoid(args.beta * p.chosen_ratio) +
         torch::sigmoid(args.beta * p.rejected_ratio);
}

Tensor apo_down_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  return torch::sigmoid(args.beta * p.chosen_ratio) + 1 -
         torch::sigmoid(args.beta * (p.chosen_ratio - p.rejected_ratio));
}

Tensor discopop_loss(const Pair& p, const PairLogProbs&, const DPOConfig& args) {
  const auto x = args.beta * p.margin;
  const auto mix = torch::sigmoid(x / args.discopop_tau);
  return -log_sigmoid(x) * (1 - mix) + (-x).exp() * mix;
}

Tensor sft_loss(const Pair&, const PairLogProbs& given, const DPOConfig&) {
  return given.chosen_nll.expand({given.chosen.size(0)});
}

const std::map<std::string_view, LossFunction> kLossFunctions = {
    {"sigmoid", sigmoid_loss},
    {"hinge", hinge_loss},
    {"ipo", ipo_loss},
    {"exo_pair", exo_pair_loss},
    {"nca_pair", nca_pair_loss},
    {"robust", robust_loss},
    {"bco_pair", bco_pair_loss},
    {"sppo_hard", sppo_hard_loss},
    {"aot", aot_loss},
    {"aot_unpaired", aot_unpaired_loss},
    {"apo_zero", apo_zero_loss},
    {"apo_down", apo_down_loss},
    {"discopop", discopop_loss},
    {"sft", sft_loss},
    {"sigmoid_norm", sigmoid_norm_loss}};

}  // namespace

std::span<const std::string_view> preference_losses() { return kPreferenceLosses; }

bool takes_divergence(std::string_view loss_type) {
  return std::ranges::find(kDivergenceLosses, loss_type) != std::end(kDivergenceLosses);
}

Tensor preference_loss(const std::string& type, const PairLogProbs& pairs, const DPOConfig& args) {
  Pair pair;
  pair.chosen_ratio = pairs.chosen - pairs.ref_chosen;
  pair.rejected_ratio = pairs.rejected - pairs.ref_rejected;
  pair.chosen_score = divergence_score(pair.chosen_ratio, args);
  pair.rejected_score = divergence_score(pair.rejected_ratio, args);
  pair.margin = pair.chosen_score - pair.rejected_score;
  return kLossFunctions.at(type)(pair, pairs, args);
}

Tensor sequence_log_probs(const Tensor& log_probs, const Tensor& mask,
                          std::optional<double> ld_alpha) {
  if (!ld_alpha) return log_probs.sum(1);
  const auto places = mask.to(torch::kLong).cumsum(1), lengths = mask.sum(1);
  const auto halves = lengths.chunk(2);
  const auto shorter = torch::minimum(halves[0], halves[1]).repeat({2}).unsqueeze(1);
  const auto shared = places.gt(0).logical_and(places.le(shorter)), longer = places.gt(shorter);
  return (log_probs * shared).sum(1) + *ld_alpha * (log_probs * longer).sum(1);
}

}  // namespace gradus
