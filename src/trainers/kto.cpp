#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/models/backbone.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/trainers/kto.h>

#include <cmath>

#include "trainers/metric_log.h"
#include "trainers/preference_setup.h"
#include "trainers/token_scores.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kKtoName = "KTOTrainer";
constexpr std::string_view kKtoLosses[] = {"kto", "apo_zero_unpaired"};

constexpr OptionRow<KTOConfig> kKtoRows[] = {
    {&KTOConfig::model_init_kwargs, "model_init_kwargs", Group::trainer, holds(Shape::dictionary),
     "Accepted for trl's sake; the model's own flags say how it is loaded."},
    {&KTOConfig::router_aux_loss_coef, "router_aux_loss_coef", Group::trainer, at_least(0),
     "Weight of the balancing loss of mixtures of experts, which gradus does not have."},
    {&KTOConfig::disable_dropout, "disable_dropout", Group::trainer, any_value(),
     "Train without dropout."},
    {&KTOConfig::dataset_num_proc, "dataset_num_proc", Group::trainer, at_least(1),
     "Accepted for trl's sake; rows are prepared in one process."},
    {&KTOConfig::max_length, "max_length", Group::trainer, at_least(1),
     "Longest sequence of prompt and completion in tokens; longer ones are cut."},
    {&KTOConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Round the padded length up to a multiple."},
    {&KTOConfig::precompute_ref_log_probs, "precompute_ref_log_probs", Group::trainer, any_value(),
     "Ask the reference once for all rows, before training; the answers are cached."},
    {&KTOConfig::precompute_ref_batch_size, "precompute_ref_batch_size", Group::trainer,
     at_least(1), "Batch size for that; unset: the one of training or evaluation."},
    {&KTOConfig::loss_type, "loss_type", Group::trainer, one_of(kKtoLosses),
     "kto: with an estimate of the divergence; apo_zero_unpaired: without."},
    {&KTOConfig::beta, "beta", Group::trainer, any_value(),
     "How strongly the reference holds the policy."},
    {&KTOConfig::desirable_weight, "desirable_weight", Group::trainer, any_value(),
     "Weight of completions that are wanted."},
    {&KTOConfig::undesirable_weight, "undesirable_weight", Group::trainer, any_value(),
     "Weight of completions that are not wanted."},
    {&KTOConfig::activation_offloading, "activation_offloading", Group::trainer, any_value(),
     "Keep the activations of gradient checkpointing in host memory."},
    {&KTOConfig::sync_ref_model, "sync_ref_model", Group::trainer, any_value(),
     "Move the reference towards the policy every ref_model_sync_steps steps (TR-DPO)."},
    {&KTOConfig::ref_model_mixup_alpha, "ref_model_mixup_alpha", Group::trainer, any_value(),
     "How far: the share of the policy in the new reference."},
    {&KTOConfig::ref_model_sync_steps, "ref_model_sync_steps", Group::trainer, at_least(1),
     "Steps between two moves of the reference."},
};

void check_kto_args(const KTOConfig& args) {
  if (args.loss_type == "kto" && args.train_sampling_strategy != "sequential")
    refuse_options(
        fmt::format("train_sampling_strategy {} parts the rows that the loss kto compares",
                    args.train_sampling_strategy),
        "Leave it at sequential, or use the loss apo_zero_unpaired.");
  if (args.loss_type == "kto" && args.per_device_train_batch_size <= 1)
    refuse_options("the loss kto compares the rows of a batch, so that one row is not enough",
                   "Set --per_device_train_batch_size to 2 or more.");
  if (args.sync_ref_model && args.precompute_ref_log_probs)
    refuse_options("sync_ref_model changes the reference, precompute_ref_log_probs asks it once",
                   "Leave one of them out.");
  if (args.router_aux_loss_coef.value_or(0) != 0)
    refuse_options("router_aux_loss_coef is for mixtures of experts", "Leave it out.");
}

/// Warns when the weights do not make up for unequal numbers of rows.
void check_balance(const DatasetRef& rows, const KTOConfig& args) {
  const auto& set = *rows.map_style();
  int64_t wanted = 0;
  for (int64_t i = 0; i < set.size(); ++i) wanted += set.get(i)["label"].boolean() ? 1 : 0;
  const auto good = double(std::max<int64_t>(wanted, 1)),
             bad = double(std::max<int64_t>(set.size() - int64_t(good), 1));
  if (good == bad) return;
  const auto rounded = [](double value) { return std::round(value * 100) / 100; };
  const auto for_good = bad * args.undesirable_weight / good,
             for_bad = good * args.desirable_weight / bad;
  const auto lies_in = [](double value, double least, double most) {
    return least <= value && value <= most;
  };
  if (lies_in(args.desirable_weight, rounded(for_good), rounded(for_good * 1.33)) ||
      lies_in(args.undesirable_weight, rounded(for_bad / 1.33), rounded(for_bad)))
    return;
  log_warning(
      fmt::format("There are {:.0f} completions that are wanted and {:.0f} that are not, and the "
                  "weights do not make up for it. Set either desirable_weight between {} and {}, "
                  "or undesirable_weight between {} and {}.",
                  good, bad, rounded(for_good), rounded(for_good * 1.33), rounded(for_bad / 1.33),
                  rounded(for_bad)));
}

/// The completions of the rows, or those of their neighbours (`prefix` "KL_").
struct Completions {
  Completions(const Batch& inputs, const std::string& prefix)
      : model_inputs{{"input_ids", inputs[prefix + "input_ids"]},
                     {"attention_mask", inputs[prefix + "attention_mask"]}},
        labels(inputs[prefix + "input_ids"].masked_fill(inputs[prefix + "completion_mask"].eq(0),
                                                        -100)) {
    if (inputs.contains(prefix + kIsRightPadded))
      model_inputs.set(kIsRightPadded, inputs[prefix + kIsRightPadded]);
  }

  Batch model_inputs;
  Tensor labels;
};

}  // namespace

std::span<const OptionRow<KTOConfig>> KTOConfig::own_options() { return kKtoRows; }

nlohmann::ordered_json KTOConfig::to_dict() const { return arguments_to_dict(*this); }

KTOConfig KTOConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<KTOConfig>(dict);
}

bool operator==(const KTOConfig&, const KTOConfig&) = default;

KTOConfig::operator TrainingArguments() const { return plain_arguments(*this); }

KTOConfig KTOConfig::resolved() const {
  const auto args = resolve_fields(with_trl_rules(*this));
  check_kto_args(args);
  return args;
}

PreferenceSetup KTOTrainer::prepare(const KTOTrainerOptions& given, const KTOConfig& args) {
  const auto kl_batch =
      args.loss_type == "kto" ? std::optional(args.per_device_train_batch_size) : std::nullopt;
  const PreferenceKind kind{
      .who = kKtoName,
      .max_length = args.max_length,
      .model = [&](auto&) { return policy_to_train(given.model, given.peft_config, kKtoName); },
      .collator =
          [&](int64_t pad_token_id) {
            return DataCollatorForUnpairedPreference(
                {.pad_token_id = pad_token_id,
                 .max_length = args.max_length,
                 .pad_to_multiple_of = args.pad_to_multiple_of});
          },
      .make_tokens =
          [kl_batch](const DatasetRef& rows, const PreferencePreparation& how,
                     const std::string& name) {
            return prepare_unpaired_rows(rows, how, kl_batch, name);
          }};
  auto prepared = prepare_preferences(plain_options(given, args, kKtoName), kind);
  check_balance(prepared.options.train_dataset, args);
  auto setup = preference_setup(std::move(prepared), given, args, kKtoName);
  setup.columns = {"ref_logps"};
  if (kl_batch) setup.columns.push_back("ref_KL_logps");
  setup.settings = fmt::format("kto {}", args.max_length.value_or(-1));
  return setup;
}

KTOTrainer::KTOTrainer(KTOTrainerOptions options)
    : KTOTrainer(options.args.resolved(), prepare(options, options.args.resolved())) {}

KTOTrainer::KTOTrainer(KTOConfig args, PreferenceSetup setup)
    : PreferenceTrainer(std::move(setup), args.to_dict()), args_(std::move(args)) {
  ask_reference_once();
}

std::vector<Tensor> KTOTrainer::reference_log_probs(const Batch& inputs,
                                                    const ReferencePolicy& reference) const {
  const auto log_probs = [&](const char* prefix) {
    const Completions completions(inputs, prefix);
    return reference.score(completions.model_inputs, completions.labels, model()).log_probs.sum(1);
  };
  if (!estimates_kl()) return {log_probs("")};
  const auto neighbours = log_probs("KL_");  // first, as in trl: dropout draws in this order
  return {log_probs(""), neighbours};
}

StepTraits KTOTrainer::step_traits() const {
  if (!is_exactly<KTOTrainer>()) return {};
  return {.recordable = !processes(), .reads_logits = false};  // metrics of several are exchanged
}

Loss KTOTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const layers::NoDropout no_dropout(args_.disable_dropout);
  const Completions own(inputs, "");
  Tensor of_neighbours;
  if (estimates_kl()) {
    const torch::NoGradGuard no_grad;
    const Completions neighbours(inputs, "KL_");
    ModelOutput outputs;
    of_neighbours = score_by_model(model, neighbours.model_inputs, neighbours.labels, {}, outputs)
                        .log_probs.sum(1);
  }
  Loss result;
  const auto scores = score_by_model(model, own.model_inputs, own.labels,
                                     {.entropy = true, .mean_logits = true}, result.outputs);
  const auto log_probs = scores.log_probs.sum(1);
  const auto by_ref = by_reference(inputs);
  auto kl = torch::zeros({}, by_ref[0].options());
  if (estimates_kl()) kl = mean_over_processes((of_neighbours - by_ref[1]).mean()).clamp_min(0);
  const auto ratios = log_probs - by_ref[0];
  const auto wanted = inputs["label"].to(torch::kBool), unwanted = wanted.logical_not();
  const auto losses =
      torch::where(wanted, args_.desirable_weight * (1 - (args_.beta * (ratios - kl)).sigmoid()),
                   args_.undesirable_weight * (1 - (args_.beta * (kl - ratios)).sigmoid()));
  result.loss = losses.nanmean();

  const auto rewards = args_.beta * ratios.detach();
  MetricBatch metrics;
  metrics.mean("kl", kl);
  metrics.mean("entropy", scores.entropy.sum(), scores.mask.sum());
  for (const auto& [name, rows] : {std::pair("chosen", wanted), std::pair("rejected", unwanted)}) {
    const auto of_rows = [&](const Tensor& values) {
      return values.detach().masked_fill(rows.logical_not(), 0).nansum();
    };
    metrics.mean_if_any(fmt::format("logits/{}", name), of_rows(scores.mean_logits.sum(1)),
                        of_rows(scores.mask.sum(1).to(torch::kFloat)));
    metrics.mean_if_any(fmt::format("rewards/{}", name), of_rows(rewards), rows.sum());
    metrics.mean_if_any(fmt::format("logps/{}", name), of_rows(log_probs), rows.sum());
  }
  metrics.difference("rewards/margins", "rewards/chosen", "rewards/rejected");
  metrics.tokens(inputs["attention_mask"].sum());
  note(metrics, training);
  return result;
}

}  // namespace gradus
