// The options of preference optimization, and which of them go together.
#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/trainers/dpo.h>

#include <algorithm>

#include "trainers/dpo_loss.h"
#include "trainers/trl_options.h"

namespace gradus {
namespace {

constexpr std::string_view kKeptEnds[] = {"keep_start", "keep_end"};
constexpr std::string_view kDivergences[] = {"reverse_kl", "forward_kl", "js_divergence",
                                             "alpha_divergence"};

std::vector<std::string> preference_loss_choices() {
  const auto names = preference_losses();
  return {names.begin(), names.end()};
}

constexpr OptionRow<DPOConfig> kDpoRows[] = {
    {&DPOConfig::model_init_kwargs, "model_init_kwargs", Group::trainer, holds(Shape::dictionary),
     "Accepted for trl's sake; the model's own flags say how it is loaded."},
    {&DPOConfig::router_aux_loss_coef, "router_aux_loss_coef", Group::trainer, at_least(0),
     "Weight of the balancing loss of mixtures of experts, which gradus does not have."},
    {&DPOConfig::disable_dropout, "disable_dropout", Group::trainer, any_value(),
     "Train without dropout."},
    {&DPOConfig::dataset_num_proc, "dataset_num_proc", Group::trainer, at_least(1),
     "Accepted for trl's sake; rows are prepared in one process."},
    {&DPOConfig::max_length, "max_length", Group::trainer, at_least(1),
     "Longest sequence of prompt and completion in tokens; longer ones are cut."},
    {&DPOConfig::truncation_mode, "truncation_mode", Group::trainer, one_of(kKeptEnds),
     "Which end of a longer sequence stays."},
    {&DPOConfig::padding_free, "padding_free", Group::trainer, any_value(),
     "Accepted and ignored, as in trl 1.16."},
    {&DPOConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Round the padded length up to a multiple."},
    {&DPOConfig::precompute_ref_log_probs, "precompute_ref_log_probs", Group::trainer, any_value(),
     "Ask the reference once for all rows, before training; the answers are cached."},
    {&DPOConfig::precompute_ref_batch_size, "precompute_ref_batch_size", Group::trainer,
     at_least(1), "Batch size for that; unset: the one of training or evaluation."},
    {&DPOConfig::loss_type, "loss_type", Group::trainer, one_of(preference_loss_choices),
     "One loss, or several that are added with loss_weights."},
    {&DPOConfig::loss_weights, "loss_weights", Group::trainer, any_value(),
     "A weight for each loss; unset: 1."},
    {&DPOConfig::ld_alpha, "ld_alpha", Group::trainer, within(0, 1),
     "Weight of the tokens beyond the length of the shorter completion (LD-DPO); unset: 1."},
    {&DPOConfig::f_divergence_type, "f_divergence_type", Group::trainer, one_of(kDivergences),
     "Which divergence holds the policy near the reference."},
    {&DPOConfig::f_alpha_divergence_coef, "f_alpha_divergence_coef", Group::trainer, any_value(),
     "The exponent of alpha_divergence."},
    {&DPOConfig::label_smoothing, "label_smoothing", Group::trainer, any_value(),
     "How likely a preference is wrong, for robust, exo_pair, aot and aot_unpaired."},
    {&DPOConfig::beta, "beta", Group::trainer, any_value(),
     "How strongly the reference holds the policy; for ipo the regularization τ."},
    {&DPOConfig::use_weighting, "use_weighting", Group::trainer, any_value(),
     "Weight each pair by how likely the policy is to write it (WPO)."},
    {&DPOConfig::discopop_tau, "discopop_tau", Group::trainer, any_value(),
     "Temperature of discopop."},
    {&DPOConfig::activation_offloading, "activation_offloading", Group::trainer, any_value(),
     "Keep the activations of gradient checkpointing in host memory."},
    {&DPOConfig::sync_ref_model, "sync_ref_model", Group::trainer, any_value(),
     "Move the reference towards the policy every ref_model_sync_steps steps (TR-DPO)."},
    {&DPOConfig::ref_model_mixup_alpha, "ref_model_mixup_alpha", Group::trainer, any_value(),
     "How far: the share of the policy in the new reference."},
    {&DPOConfig::ref_model_sync_steps, "ref_model_sync_steps", Group::trainer, at_least(1),
     "Steps between two moves of the reference."},
    {&DPOConfig::pad_token, "pad_token", Group::trainer, any_value(),
     "Padding token; unset: the tokenizer's, else the end token."},
};

void check_dpo_args(const DPOConfig& args) {
  const auto has = [&](std::string_view loss) {
    return std::ranges::find(args.loss_type, loss) != args.loss_type.end();
  };
  if (args.loss_type.empty()) refuse_options("loss_type names no loss", "Name one, or more.");
  if (args.loss_weights && args.loss_weights->size() != args.loss_type.size())
    refuse_options(fmt::format("there are {} loss_weights for {} losses", args.loss_weights->size(),
                               args.loss_type.size()),
                   "Give one weight for each loss of loss_type.");
  if (args.f_divergence_type != "reverse_kl")
    for (const auto& loss : args.loss_type)
      if (!takes_divergence(loss))
        refuse_options(fmt::format("the loss {} has no form for f_divergence_type {}", loss,
                                   args.f_divergence_type),
                       "Use reverse_kl, or another loss.");
  if (args.use_weighting && (has("aot") || has("aot_unpaired")))
    refuse_options("use_weighting cannot be used with aot and aot_unpaired, which sort the pairs",
                   "Leave one of them out.");
  if (has("exo_pair") && args.label_smoothing == 0)
    refuse_options("exo_pair needs label_smoothing above 0", "1e-3 is usual.");
  if (has("robust") && args.label_smoothing == 0.5)
    refuse_options("robust divides by 1 - 2 label_smoothing, which is 0 for 0.5",
                   "Set --label_smoothing to less than 0.5.");
  if (has("robust") && !(args.label_smoothing >= 0 && args.label_smoothing < 0.5))
    log_warning(fmt::format("label_smoothing should lie in [0, 0.5) for robust, received {}.",
                            args.label_smoothing));
  if (args.sync_ref_model && args.precompute_ref_log_probs)
    refuse_options("sync_ref_model changes the reference, precompute_ref_log_probs asks it once",
                   "Leave one of them out.");
  if (args.router_aux_loss_coef.value_or(0) != 0)
    refuse_options("router_aux_loss_coef is for mixtures of experts", "Leave it out.");
  if (args.padding_free)
    log_warning_once("padding_free is ignored, as in trl: batches are padded.");
}

}  // namespace

std::span<const OptionRow<DPOConfig>> DPOConfig::own_options() { return kDpoRows; }

nlohmann::ordered_json DPOConfig::to_dict() const { return arguments_to_dict(*this); }

DPOConfig DPOConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<DPOConfig>(dict);
}

bool operator==(const DPOConfig&, const DPOConfig&) = default;

DPOConfig::operator TrainingArguments() const { return plain_arguments(*this); }

DPOConfig DPOConfig::resolved() const {
  const auto args = resolve_fields(with_trl_rules(*this));
  check_dpo_args(args);
  return args;
}

}  // namespace gradus
