#include <fmt/format.h>
#include <gradus/data/collators.h>
#include <gradus/models/backbone.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/dpo.h>

#include "trainers/dpo_loss.h"
#include "trainers/metric_log.h"
#include "trainers/preference_setup.h"
#include "trainers/token_scores.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kDpoName = "DPOTrainer";

/// What the model takes of a batch, with what is known of the mask.
Batch model_inputs(const Batch& inputs) {
  auto taken = inputs;
  for (const auto& name : inputs.names())
    if (name != "input_ids" && name != "attention_mask" && name != kIsRightPadded) taken.pop(name);
  return taken;
}

/// The token ids, where they belong to a completion.
Tensor completion_labels(const Batch& inputs) {
  return inputs["input_ids"].masked_fill(inputs["completion_mask"].eq(0), -100);
}

}  // namespace

PreferenceSetup DPOTrainer::prepare(const DPOTrainerOptions& given, const DPOConfig& args) {
  const bool keeps_end = args.truncation_mode == "keep_end";
  const PreferenceKind kind{
      .who = kDpoName,
      .tokenizer = {.pad_token = args.pad_token},
      .max_length = args.max_length,
      .keeps_end = keeps_end,
      .model = [&](auto&) { return policy_to_train(given.model, given.peft_config, kDpoName); },
      .collator =
          [&](int64_t pad_token_id) {
            return DataCollatorForPreference({.pad_token_id = pad_token_id,
                                              .max_length = args.max_length,
                                              .truncation_mode = keeps_end
                                                                     ? TruncationMode::keep_end
                                                                     : TruncationMode::keep_start,
                                              .pad_to_multiple_of = args.pad_to_multiple_of});
          },
      .make_tokens = prepare_preference_rows};
  auto setup = preference_setup(prepare_preferences(plain_options(given, args, kDpoName), kind),
                                given, args, kDpoName);
  setup.columns = {"ref_chosen_logps", "ref_rejected_logps"};
  setup.settings = fmt::format("dpo {} {} {}", args.ld_alpha.value_or(-1),
                               args.max_length.value_or(-1), args.truncation_mode);
  return setup;
}

DPOTrainer::DPOTrainer(DPOTrainerOptions options)
    : DPOTrainer(options.args.resolved(), prepare(options, options.args.resolved())) {}

DPOTrainer::DPOTrainer(DPOConfig args, PreferenceSetup setup)
    : PreferenceTrainer(std::move(setup), args.to_dict()), args_(std::move(args)) {
  ask_reference_once();
}

std::vector<Tensor> DPOTrainer::reference_log_probs(const Batch& inputs,
                                                    const ReferencePolicy& reference) const {
  const auto scores = reference.score(model_inputs(inputs), completion_labels(inputs), model());
  return sequence_log_probs(scores.log_probs, scores.mask, args_.ld_alpha).chunk(2);
}

StepTraits DPOTrainer::step_traits() const {
  if (!is_exactly<DPOTrainer>()) return {};
  return {.recordable = !processes(), .reads_logits = false};  // metrics of several are exchanged
}

Loss DPOTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const layers::NoDropout no_dropout(args_.disable_dropout);
  Loss result;
  const auto scores = score_by_model(model, model_inputs(inputs), completion_labels(inputs),
                                     {.entropy = true,
                                      .mean_logits = true,
                                      .is_top1 = true,
                                      .log_sum_sq_probs = args_.use_weighting},
                                     result.outputs);
  const auto halves = [](const Tensor& both) { return both.chunk(2); };
  const auto by_policy = halves(sequence_log_probs(scores.log_probs, scores.mask, args_.ld_alpha));
  const auto by_ref = by_reference(inputs);
  const auto lengths = halves(inputs["completion_mask"].sum(1).clamp_min(1).to(torch::kFloat));
  const auto masks = halves(scores.mask), token_log_probs = halves(scores.log_probs);
  const auto chosen_tokens = masks[0].sum();
  const PairLogProbs pairs{.chosen = by_policy[0],
                           .rejected = by_policy[1],
                           .ref_chosen = by_ref[0],
                           .ref_rejected = by_ref[1],
                           .chosen_tokens = lengths[0],
                           .rejected_tokens = lengths[1],
                           .chosen_nll = -token_log_probs[0].sum() / chosen_tokens};
  Tensor weights;
  if (args_.use_weighting) {
    const auto aligned = (scores.log_probs.detach() - scores.log_sum_sq_probs) * scores.mask;
    const auto each = halves((aligned.sum(1) / scores.mask.sum(1).clamp_min(1)).exp());
    weights = each[0] * each[1];
  }
  for (size_t i = 0; i < args_.loss_type.size(); ++i) {
    auto losses = preference_loss(args_.loss_type[i], pairs, args_);
    if (weights.defined()) losses = losses * weights;
    const auto weighted = losses.mean() * (args_.loss_weights ? (*args_.loss_weights)[i] : 1.0);
    result.loss = result.loss.defined() ? result.loss + weighted : weighted;
  }

  const auto chosen_rewards = args_.beta * (pairs.chosen - pairs.ref_chosen).detach();
  const auto rejected_rewards = args_.beta * (pairs.rejected - pairs.ref_rejected).detach();
  const auto mean_logits = halves(scores.mean_logits);
  MetricBatch metrics;
  metrics.mean("entropy", scores.entropy.sum(), scores.mask.sum());
  metrics.mean("logits/chosen", mean_logits[0].sum(), chosen_tokens);
  metrics.mean("logits/rejected", mean_logits[1].sum(), masks[1].sum());
  metrics.mean("mean_token_accuracy", halves(scores.is_top1)[0].sum(), chosen_tokens);
  metrics.mean("rewards/chosen", chosen_rewards);
  metrics.mean("rewards/rejected", rejected_rewards);
  metrics.mean("rewards/accuracies", chosen_rewards.gt(rejected_rewards));
  metrics.mean("rewards/margins", chosen_rewards - rejected_rewards);
  metrics.mean("logps/chosen", pairs.chosen);
  metrics.mean("logps/rejected", pairs.rejected);
  metrics.tokens(inputs["attention_mask"].sum());
  note(metrics, training);
  return result;
}

}  // namespace gradus
