#include <fmt/format.h>
#include <gradus/data/collators.h>
#include <gradus/device/runtime.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/dpo.h>

#include "trainers/dpo_loss.h"
#include "trainers/metric_log.h"
#include "trainers/preference_data.h"
#include "trainers/reference_columns.h"
#include "trainers/reference_policy.h"
#include "trainers/token_scores.h"
#include "trainers/trl_options.h"

namespace gradus {

using torch::Tensor;

namespace {

const std::vector<std::string> kReferenceColumns = {"ref_chosen_logps", "ref_rejected_logps"};

/// What the model takes of a batch.
Batch model_inputs(const Batch& inputs) {
  return {{"input_ids", inputs["input_ids"]}, {"attention_mask", inputs["attention_mask"]}};
}

/// The token ids, where they belong to a completion.
Tensor completion_labels(const Batch& inputs) {
  return inputs["input_ids"].masked_fill(inputs["completion_mask"].eq(0), -100);
}

}  // namespace

/// What the constructor has made of its options.
struct DPOTrainer::Prepared {
  TrainerOptions options;
  PrepareRows prepare_rows;
  ReferencePolicy reference;
};

DPOTrainer::Prepared DPOTrainer::prepare(DPOTrainerOptions given, const DPOConfig& args) {
  Prepared prepared;
  auto& options = prepared.options = plain_options(given, args);
  const auto tokenizer =
      trl_tokenizer(given.processing_class, {.pad_token = args.pad_token}, "DPOTrainer");
  options.processing_class = tokenizer;
  device::seed_all(args.seed);  // the adapter's matrices are random
  options.model = policy_to_train(given.model, given.peft_config, "DPOTrainer");
  const bool keeps_end = args.truncation_mode == "keep_end";
  options.data_collator = given.data_collator;
  if (!options.data_collator)
    options.data_collator = DataCollatorForPreference(
        {.pad_token_id = *tokenizer->pad_token_id(),
         .max_length = args.max_length,
         .truncation_mode = keeps_end ? TruncationMode::keep_end : TruncationMode::keep_start,
         .pad_to_multiple_of = args.pad_to_multiple_of});
  const PreferencePreparation how{.tokenizer = tokenizer,
                                  .who = "DPOTrainer",
                                  .max_length = args.max_length,
                                  .keeps_end = keeps_end,
                                  .longest = longest_input(*options.model)};
  prepared.prepare_rows = [how](const DatasetRef& rows, const std::string& name) {
    return prepare_preference_rows(rows, how, name);
  };
  prepare_sets(options, "DPOTrainer", prepared.prepare_rows);
  prepared.reference = reference_to_use(options.model, given.ref_model,
                                        {.adapter_is_new = given.peft_config.has_value(),
                                         .asked_once = args.precompute_ref_log_probs,
                                         .is_synced = args.sync_ref_model},
                                        "DPOTrainer");
  return prepared;
}

DPOTrainer::DPOTrainer(DPOTrainerOptions options)
    : DPOTrainer(options.args.resolved(), prepare(options, options.args.resolved())) {}

DPOTrainer::DPOTrainer(DPOConfig args, Prepared prepared)
    : TrlTrainer(std::move(prepared.options), args.to_dict()),
      args_(std::move(args)),
      reference_(std::make_unique<ReferencePolicy>(std::move(prepared.reference))) {
  loss_is_scaled_for_ga = false;
  if (const auto own = reference_->own_model()) own->to(device());
  if (args_.sync_ref_model)
    add_callback(std::make_shared<SyncRefModelCallback>(
        reference_->own_model(), args_.ref_model_mixup_alpha, args_.ref_model_sync_steps));
  set_prepare_rows(prepared.prepare_rows);
  if (!args_.precompute_ref_log_probs) return;
  compute_columns([this](const DatasetRef& rows, const std::string& name) {
    return with_reference(rows, name);
  });
  if (reference_->own_model() == model_ptr()) *reference_ = {};
  set_prepare_rows([this, make_tokens = std::move(prepared.prepare_rows)](const DatasetRef& rows,
                                                                          const std::string& name) {
    return with_reference(make_tokens(rows, name), name);
  });
}

DPOTrainer::~DPOTrainer() = default;

DatasetRef DPOTrainer::with_reference(const DatasetRef& rows, const std::string& name) const {
  ReferenceColumns columns{.names = kReferenceColumns};
  columns.compute = [this](const std::vector<Example>& batch) {
    const auto inputs = prepare_inputs(collator()(batch));
    const auto precision = compute_loss_context_manager();
    return reference_log_probs(inputs).chunk(2);
  };
  const auto usual = name == "train_dataset" ? args_.per_device_train_batch_size
                                             : args_.per_device_eval_batch_size;
  columns.batch_size = args_.precompute_ref_batch_size.value_or(usual);
  const auto own = reference_->own_model();
  columns.reference = *reference_ ? (own ? own : model_ptr()).get() : nullptr;
  columns.settings =
      fmt::format("dpo {} {} {} {}", args_.ld_alpha.value_or(-1), args_.max_length.value_or(-1),
                  args_.truncation_mode, args().mixed_precision());
  columns.group = processes();
  return with_reference_columns(rows, columns, name);
}

Tensor DPOTrainer::reference_log_probs(const Batch& inputs) const {
  const torch::NoGradGuard no_grad;
  const layers::NoDropout no_dropout(args_.disable_dropout);
  const auto outputs = reference_->forward(model_inputs(inputs));
  const auto scores = score_tokens(outputs["logits"], completion_labels(inputs));
  return sequence_log_probs(scores.log_probs, scores.mask, args_.ld_alpha);
}

Loss DPOTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const layers::NoDropout no_dropout(args_.disable_dropout);
  Loss result;
  result.outputs = run_model(model, model_inputs(inputs), training);
  const auto scores = score_tokens(result.outputs["logits"], completion_labels(inputs),
                                   {.entropy = true,
                                    .mean_logits = true,
                                    .is_top1 = true,
                                    .log_sum_sq_probs = args_.use_weighting});
  const auto halves = [](const Tensor& both) { return both.chunk(2); };
  const auto by_policy = halves(sequence_log_probs(scores.log_probs, scores.mask, args_.ld_alpha));
  const auto by_reference =
      args_.precompute_ref_log_probs
          ? std::vector{inputs[kReferenceColumns[0]], inputs[kReferenceColumns[1]]}
          : halves(reference_log_probs(inputs));
  const auto lengths = halves(inputs["completion_mask"].sum(1).clamp_min(1).to(torch::kFloat));
  const auto masks = halves(scores.mask), token_log_probs = halves(scores.log_probs);
  const auto chosen_tokens = masks[0].sum();
  const PairLogProbs pairs{.chosen = by_policy[0],
                           .rejected = by_policy[1],
                           .ref_chosen = by_reference[0],
                           .ref_rejected = by_reference[1],
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
