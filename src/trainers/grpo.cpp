#include <gradus/trainers/grpo.h>

#include <gradus/distributed/process_group.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/min.h>
#include <ATen/ops/quantile.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "train/file_state.h"
#include "trainers/advantages.h"
#include "trainers/metric_log.h"
#include "trainers/nan_statistics.h"
#include "trainers/rollout_arguments.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kGrpoName = "GRPOTrainer";
constexpr double kNoEntropy = -1e9;  ///< Below every entropy.

/// Whether a loss type clips ratios on both sides.
bool clips(const std::string& loss_type) {
  return loss_type != "cispo" && loss_type != "sapo" && loss_type != "vespo";
}

/// One value for each row: the mean over its tokens.
Tensor row_means(const Tensor& values, const Tensor& mask) {
  return values.size(1) == 1 ? values.squeeze(1) : (values * mask).sum(-1) / mask.sum(-1);
}

/// VESPO's weights of whole sequences, φ(w) = e^λ · w^k · e^(-λw), computed as logarithms.
Tensor gamma_weights(const GRPOConfig& args, const Tensor& advantages, const Tensor& log_ratio,
                     const Tensor& mask) {
  const torch::NoGradGuard no_grad;
  const auto least = std::log(1e-8);
  const auto log_w = (log_ratio.clamp(-20.0, 20.0) * mask).sum(-1, true).clamp(least, 20.0);
  const auto is_good = advantages.ge(0);
  const auto k = at::where(is_good, args.vespo_k_pos, args.vespo_k_neg);
  const auto lambda =
      at::where(is_good, args.vespo_lambda_pos, args.vespo_lambda_neg).clamp_min(1e-4);
  return (lambda + k * log_w - lambda * log_w.exp()).exp().nan_to_num(0.0, 0.0, 0.0);
}

/// The loss of each token (rows, tokens), or of each row (rows, 1).
struct PolicyLoss {
  Tensor losses;
  Tensor ratio;     ///< As the clipping metrics count it.
  Tensor phi = {};  ///< Of vespo.
};

PolicyLoss policy_loss(const GRPOConfig& args, const Tensor& ratio, const Tensor& log_ratio,
                       const Tensor& log_probs, const Tensor& advantages, const Tensor& mask) {
  const auto high = args.epsilon_high.value_or(args.epsilon);
  if (args.loss_type == "cispo")
    return {.losses = -ratio.clamp_max(high).detach() * advantages * log_probs, .ratio = ratio};
  if (args.loss_type == "sapo") {
    const auto temperature =
        at::where(advantages.gt(0), args.sapo_temperature_pos, args.sapo_temperature_neg);
    return {.losses = -(temperature * (ratio - 1)).sigmoid() * 4 / temperature * advantages,
            .ratio = ratio};
  }
  if (args.loss_type == "vespo") {
    const auto phi = gamma_weights(args, advantages, log_ratio, mask);
    return {.losses = -phi * advantages * log_probs, .ratio = ratio, .phi = phi};
  }
  const auto clipped = ratio.clamp(1 - args.epsilon, 1 + high);
  const auto bounded = args.delta ? ratio.clamp_max(*args.delta) : ratio;
  return {.losses = -at::min(bounded * advantages, clipped * advantages), .ratio = bounded};
}

/// The state of the adaptive entropy, in trl's file.
class EntropyFile : public TrainerCallback, public FileState {
 public:
  EntropyFile(double& coefficient, double& last) : coefficient_(coefficient), last_(last) {}

  std::string name() const override { return "EntropyFile"; }
  std::string file_name() const override { return "entropy_ctrl_state.json"; }
  nlohmann::json file_state() const override {
    return {{"entropy_coef", coefficient_}, {"last_world_entropy", last_}};
  }
  void load_file_state(const nlohmann::json& state) override {
    coefficient_ = state.at("entropy_coef");
    last_ = state.at("last_world_entropy");
  }

 private:
  double &coefficient_, &last_;
};

}  // namespace

GRPOTrainer::GRPOTrainer(GRPOTrainerOptions options)
    : GRPOTrainer(options.args.resolved(),
                  rewarded_options(options, options.args.resolved(), kGrpoName)) {}

GRPOTrainer::GRPOTrainer(GRPOConfig args, RolloutOptions options)
    : RolloutTrainer(std::move(options), args.to_dict()),
      args_(std::move(args)),
      entropy_coef_(args_.entropy_coef),
      last_entropy_(std::numeric_limits<double>::infinity()) {
  loss_is_scaled_for_ga = true;
  if (args_.use_adaptive_entropy)
    add_callback(std::make_shared<EntropyFile>(entropy_coef_, last_entropy_));
}

GRPOTrainer::~GRPOTrainer() = default;

void GRPOTrainer::score(Scored& scored, MetricBatch& metrics) {
  if (completions_get_old()) scored.batch.set("old_per_token_logps", log_probs_of(scored));
  if (has_reference()) scored.batch.set("ref_per_token_logps", reference_log_probs_of(scored));
  const auto rewards = rewards_of(scored, metrics);
  const auto advantages = group_advantages(
      rewards, reward_weights(),
      {.num_generations = group_size(scored),
       .scale_rewards = args_.scale_rewards,
       .normalize_first = args_.multi_objective_aggregation == "normalize_then_sum"});
  set_advantages(scored, total_of(rewards), advantages, metrics);
}

/// The tokens whose entropy is among the highest of all processes.
Tensor GRPOTrainer::high_entropy_mask(const Tensor& entropy, const Tensor& mask) const {
  const torch::NoGradGuard no_grad;
  auto values = entropy.detach().masked_select(mask.gt(0));
  if (processes()) {
    const auto sizes = gathered(torch::full({1}, values.numel(), torch::kLong));
    values = torch::constant_pad_nd(values, {0, sizes.max().item<int64_t>() - values.numel()},
                                    kNoEntropy);
    values = gathered(values);
    values = values.masked_select(values.ne(kNoEntropy));
  }
  if (values.numel() == 0) return at::zeros_like(mask);
  const auto threshold = at::quantile(values, 1 - args_.top_entropy_quantile);
  return (entropy.detach() * mask).ge(threshold).logical_and(mask.gt(0)).to(torch::kFloat);
}

/// 0 for completions with a negative advantage that the policy has moved away from.
Tensor GRPOTrainer::kept_on_policy(const Batch& inputs, const Tensor& log_probs, const Tensor& old,
                                   const Tensor& mask) const {
  const torch::NoGradGuard no_grad;
  const auto* drawn = inputs.find("sampling_per_token_logps");
  const auto distance = ((drawn != nullptr ? *drawn : old) - log_probs.detach()).nan_to_num(0.0);
  const auto mean = (distance * mask).sum(1, true) / mask.sum(1, true).clamp_min(1);
  const auto is_good = inputs["advantages"].unsqueeze(1).ge(0);
  return is_good.logical_or(mean.le(*args_.off_policy_mask_threshold)).to(torch::kFloat);
}

StepTraits GRPOTrainer::step_traits() const {
  return plain_step(/*reads_logits=*/!is_exactly<GRPOTrainer>());
}

Loss GRPOTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const bool has_bonus = args_.entropy_coef != 0 || args_.use_adaptive_entropy;
  const auto mask = inputs["completion_mask"].to(torch::kFloat);
  const auto advantages = inputs["advantages"].unsqueeze(1);
  const auto [log_probs, entropy] = token_values(model, inputs, has_bonus);
  const auto* old_given = inputs.find("old_per_token_logps");
  const auto old = old_given != nullptr ? *old_given : log_probs.detach();

  const auto log_ratio = log_probs - old;
  auto log_weights = log_ratio;
  if (args_.importance_sampling_level == "sequence")
    log_weights = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp_min(1)).unsqueeze(-1);
  const auto ratio = log_weights.exp();
  const auto policy = policy_loss(args_, ratio, log_ratio, log_probs, advantages, mask);
  auto losses = policy.losses;
  if (args_.off_policy_mask_threshold)
    losses = losses * kept_on_policy(inputs, log_probs, old, mask);
  auto counted = mask;
  if (args_.top_entropy_quantile < 1) {
    const auto high = high_entropy_mask(entropy, mask);
    losses = losses * high;
    counted = mask * high;
  }

  MetricBatch metrics;
  if (has_reference()) {
    const auto distance = inputs["ref_per_token_logps"] - log_probs;
    auto kl = distance.exp() - distance - 1;
    if (args_.use_bias_correction_kl) kl = kl * ratio;
    losses = losses + args_.beta * kl;
    note_mean(metrics, "kl", kl, mask);
  }
  Loss result{.loss = mean_loss(losses, mask, inputs, training)};
  if (has_bonus) {
    const bool is_divided =
        args_.loss_type == "cispo" || args_.loss_type == "dapo" || args_.loss_type == "vespo";
    const auto whole = is_divided ? result.loss : result.loss * window();
    metrics.mean_if_any("policy_loss", whole.detach().nan_to_num(0.0),
                        whole.detach().isnan().logical_not());
    result.loss = result.loss - entropy_bonus(entropy, counted, training, metrics);
  }
  note_mean(metrics, "entropy", entropy, mask);
  if (clips(args_.loss_type)) {
    note_clipping(policy.ratio, advantages, mask, metrics);
  } else if (args_.loss_type == "cispo") {
    const auto clipped =
        ratio.gt(args_.epsilon_high.value_or(args_.epsilon)).logical_and(advantages.gt(0));
    note_mean(metrics, "cispo_clip_ratio", clipped, mask);
  } else if (args_.loss_type == "vespo") {
    note_mean(metrics, "vespo/phi_seq_mean", policy.phi, mask);
  }
  note(metrics, training);
  return result;
}

/// The mean over the window, as the loss type defines it.
Tensor GRPOTrainer::mean_loss(const Tensor& losses, const Tensor& mask, const Batch& inputs,
                              bool training) const {
  const auto& type = args_.loss_type;
  const auto sum = (losses * mask).sum();
  if (type == "cispo" || type == "dapo" || type == "vespo") {
    // The number of tokens is that of the generation batch, not of the window.
    auto tokens = inputs["num_items_in_batch"].clamp_min(1).to(torch::kFloat) / world_size();
    if (training) tokens = tokens * window() / settings().steps_per_generation;
    return sum / tokens;
  }
  Tensor loss;
  if (type == "grpo" || type == "sapo")
    loss = ((losses * mask).sum(-1) / mask.sum(-1).clamp_min(1)).mean();
  else if (type == "bnpo")
    loss = sum / mask.sum().clamp_min(1);
  else if (type == "dr_grpo")
    loss = sum / double(losses.size(0) * *args_.max_completion_length);
  else  // luspo
    loss = (losses * mask).sum(-1).mean();
  return loss / window();
}

/// What is taken off the loss for the entropy; the coefficient follows the entropy when asked to.
Tensor GRPOTrainer::entropy_bonus(const Tensor& entropy, const Tensor& mask, bool training,
                                  MetricBatch& metrics) {
  const auto sum = (entropy * mask).sum();
  const auto mean = sum / mask.sum().clamp_min(1) / window();
  const bool is_low = last_entropy_ <= args_.entropy_target;
  const auto coefficient = args_.use_adaptive_entropy && !is_low ? 0.0 : entropy_coef_;
  if (args_.use_adaptive_entropy && training) {
    const auto stats = at::stack({sum, mask.sum()}).detach();
    window_entropy_ = window_entropy_.defined() ? window_entropy_ + stats : stats;
    if (ends_window()) {
      const auto all = gathered(window_entropy_.unsqueeze(0)).sum(0);
      last_entropy_ = (all[0] / all[1].clamp_min(1)).item<double>();
      entropy_coef_ =
          last_entropy_ <= args_.entropy_target
              ? std::min(entropy_coef_ + args_.entropy_coef_delta, args_.entropy_coef_max)
              : std::max(entropy_coef_ - args_.entropy_coef_delta, args_.entropy_coef_min);
      window_entropy_ = Tensor();
    }
  }
  if (training && ends_window())
    note(metrics, "entropy_coef", torch::full({}, entropy_coef_, torch::kDouble));
  return coefficient * mean;
}

void GRPOTrainer::note_clipping(const Tensor& ratio, const Tensor& advantages, const Tensor& mask,
                                MetricBatch& metrics) const {
  const torch::NoGradGuard no_grad;
  const auto high = args_.epsilon_high.value_or(args_.epsilon);
  const auto is_low = ratio.lt(1 - args_.epsilon).logical_and(advantages.lt(0)).to(torch::kFloat);
  const auto is_high = ratio.gt(1 + high).logical_and(advantages.gt(0)).to(torch::kFloat);
  note_mean(metrics, "clip_ratio/low_mean", is_low, mask);
  note_mean(metrics, "clip_ratio/high_mean", is_high, mask);
  note_mean(metrics, "clip_ratio/region_mean", is_low + is_high, mask);
  metrics.least_unless_nan("clip_ratio/low_min", nan_min(row_means(is_low, mask)));
  metrics.greatest_unless_nan("clip_ratio/high_max", nan_max(row_means(is_high, mask)));
}

StateTree GRPOTrainer::own_state() const {
  return StateTree::dict().set("entropy_coef", entropy_coef_).set("last_entropy", last_entropy_);
}

void GRPOTrainer::load_own_state(const StateTree& state) {
  entropy_coef_ = state.at("entropy_coef").as_double();
  last_entropy_ = state.at("last_entropy").as_double();
}

}  // namespace gradus
