// The options of GRPO.
#include <gradus/core/log.h>
#include <gradus/trainers/grpo.h>

#include <fmt/format.h>

#include "trainers/rollout_arguments.h"

namespace gradus {
namespace {

constexpr std::string_view kSamplingLevels[] = {"token", "sequence"};
constexpr std::string_view kAggregations[] = {"sum_then_normalize", "normalize_then_sum"};
constexpr std::string_view kRewardScales[] = {"group", "batch", "none"};
constexpr std::string_view kGrpoLosses[] = {"grpo",  "dr_grpo", "dapo",  "bnpo",
                                            "cispo", "sapo",    "luspo", "vespo"};

constexpr OptionRow<GRPOConfig> kGrpoRows[] = {
    {&GRPOConfig::model_init_kwargs, "model_init_kwargs", Group::trainer, holds(Shape::dictionary),
     "Accepted; the model is given as an object."},
    {&GRPOConfig::router_aux_loss_coef, "router_aux_loss_coef", Group::trainer, at_least(0),
     "Only for mixtures of experts, which gradus does not have: must stay unset or 0."},
    {&GRPOConfig::disable_dropout, "disable_dropout", Group::trainer, any_value(),
     "Drops nothing in training."},
    {&GRPOConfig::cast_lm_head_to_fp32, "cast_lm_head_to_fp32", Group::trainer, any_value(),
     "Accepted: log probabilities are computed in float32 anyway."},
    {&GRPOConfig::num_generations, "num_generations", Group::trainer, at_least(1),
     "Completions of each prompt."},
    {&GRPOConfig::num_generations_eval, "num_generations_eval", Group::trainer, at_least(1),
     "The same in evaluations; unset: as in training."},
    {&GRPOConfig::max_completion_length, "max_completion_length", Group::trainer, at_least(1),
     "Most tokens of a completion."},
    {&GRPOConfig::ds3_gather_for_generation, "ds3_gather_for_generation", Group::trainer,
     any_value(), "Accepted: for DeepSpeed."},
    {&GRPOConfig::shuffle_dataset, "shuffle_dataset", Group::trainer, any_value(),
     "Takes the prompts in a new order in every pass."},
    {&GRPOConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Rounds padded lengths up."},
    {&GRPOConfig::generation_batch_size, "generation_batch_size", Group::trainer, at_least(1),
     "Completions that are made at once, in all processes; unset: those of steps_per_generation "
     "steps."},
    {&GRPOConfig::steps_per_generation, "steps_per_generation", Group::trainer, at_least(1),
     "Batches that completions are made for at once; unset: gradient_accumulation_steps."},
    {&GRPOConfig::temperature, "temperature", Group::trainer, above(0),
     "Of sampling; the log probabilities of the loss are divided by it, too."},
    {&GRPOConfig::top_p, "top_p", Group::trainer, within(0, 1),
     "Samples from the most likely tokens up to this probability."},
    {&GRPOConfig::top_k, "top_k", Group::trainer, at_least(0),
     "Samples from the k most likely tokens; 0: from all."},
    {&GRPOConfig::min_p, "min_p", Group::trainer, within(0, 1),
     "Least probability of a token, relative to the most likely one."},
    {&GRPOConfig::generation_kwargs, "generation_kwargs", Group::trainer, holds(Shape::dictionary),
     "Further options of generation; they replace those above."},
    {&GRPOConfig::chat_template_kwargs, "chat_template_kwargs", Group::trainer,
     holds(Shape::dictionary), "Variables for the chat template."},
    {&GRPOConfig::repetition_penalty, "repetition_penalty", Group::trainer, above(0),
     "Above 1 repeats become unlikely."},
    {&GRPOConfig::cache_implementation, "cache_implementation", Group::trainer, any_value(),
     "Accepted: gradus has one key-value cache."},
    {&GRPOConfig::use_vllm, "use_vllm", Group::trainer, any_value(),
     "Must stay false: gradus samples with the model itself."},
    {&GRPOConfig::vllm_mode, "vllm_mode", Group::trainer, any_value(), "Accepted and not used."},
    {&GRPOConfig::vllm_model_impl, "vllm_model_impl", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_enable_sleep_mode, "vllm_enable_sleep_mode", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_structured_outputs_regex, "vllm_structured_outputs_regex", Group::trainer,
     any_value(), "Accepted and not used."},
    {&GRPOConfig::vllm_server_base_url, "vllm_server_base_url", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_server_host, "vllm_server_host", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_server_port, "vllm_server_port", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_server_timeout, "vllm_server_timeout", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_group_port, "vllm_group_port", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_gpu_memory_utilization, "vllm_gpu_memory_utilization", Group::trainer,
     any_value(), "Accepted and not used."},
    {&GRPOConfig::vllm_max_model_length, "vllm_max_model_length", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_tensor_parallel_size, "vllm_tensor_parallel_size", Group::trainer,
     any_value(), "Accepted and not used."},
    {&GRPOConfig::beta, "beta", Group::trainer, at_least(0),
     "Weight of the divergence from the reference model; 0: there is none."},
    {&GRPOConfig::num_iterations, "num_iterations", Group::trainer, at_least(1),
     "How often each generation batch is trained on."},
    {&GRPOConfig::epsilon, "epsilon", Group::trainer, at_least(0),
     "Ratios below 1 - epsilon are clipped."},
    {&GRPOConfig::delta, "delta", Group::trainer, above(0),
     "Upper bound of ratios before clipping (two-sided clipping)."},
    {&GRPOConfig::epsilon_high, "epsilon_high", Group::trainer, at_least(0),
     "Ratios above 1 + epsilon_high are clipped; unset: as epsilon. For cispo the bound itself."},
    {&GRPOConfig::sapo_temperature_neg, "sapo_temperature_neg", Group::trainer, above(0),
     "sapo: temperature of tokens with an advantage of 0 or less."},
    {&GRPOConfig::sapo_temperature_pos, "sapo_temperature_pos", Group::trainer, above(0),
     "sapo: temperature of tokens with a positive advantage."},
    {&GRPOConfig::vespo_k_pos, "vespo_k_pos", Group::trainer, any_value(),
     "vespo: power for advantages of 0 or more."},
    {&GRPOConfig::vespo_lambda_pos, "vespo_lambda_pos", Group::trainer, any_value(),
     "vespo: decay for advantages of 0 or more."},
    {&GRPOConfig::vespo_k_neg, "vespo_k_neg", Group::trainer, any_value(),
     "vespo: power for negative advantages."},
    {&GRPOConfig::vespo_lambda_neg, "vespo_lambda_neg", Group::trainer, any_value(),
     "vespo: decay for negative advantages."},
    {&GRPOConfig::importance_sampling_level, "importance_sampling_level", Group::trainer,
     one_of(kSamplingLevels), "Ratios of the policies per token, or one per sequence."},
    {&GRPOConfig::reward_weights, "reward_weights", Group::trainer, any_value(),
     "One weight for each reward; unset: 1."},
    {&GRPOConfig::multi_objective_aggregation, "multi_objective_aggregation", Group::trainer,
     one_of(kAggregations), "Add rewards up and then scale them, or the other way round."},
    {&GRPOConfig::scale_rewards, "scale_rewards", Group::trainer,
     one_of(kRewardScales).boolean_as("group", "none"),
     "Divide by the deviation of a prompt's rewards (group), of all (batch), or not."},
    {&GRPOConfig::loss_type, "loss_type", Group::trainer, one_of(kGrpoLosses),
     "How the tokens' losses are clipped and averaged."},
    {&GRPOConfig::mask_truncated_completions, "mask_truncated_completions", Group::trainer,
     any_value(), "Completions without end do not count in the loss."},
    {&GRPOConfig::sync_ref_model, "sync_ref_model", Group::trainer, any_value(),
     "Moves the reference towards the model from time to time."},
    {&GRPOConfig::ref_model_mixup_alpha, "ref_model_mixup_alpha", Group::trainer, within(0, 1),
     "Share of the model in the reference after such a move."},
    {&GRPOConfig::ref_model_sync_steps, "ref_model_sync_steps", Group::trainer, at_least(1),
     "Steps between two moves."},
    {&GRPOConfig::top_entropy_quantile, "top_entropy_quantile", Group::trainer, within(0, 1),
     "Share of the tokens, by entropy, that count in the policy's loss."},
    {&GRPOConfig::entropy_coef, "entropy_coef", Group::trainer, any_value(),
     "Weight of the mean entropy, which is taken off the loss."},
    {&GRPOConfig::use_adaptive_entropy, "use_adaptive_entropy", Group::trainer, any_value(),
     "Changes entropy_coef with every step."},
    {&GRPOConfig::entropy_coef_min, "entropy_coef_min", Group::trainer, any_value(),
     "Its least value then."},
    {&GRPOConfig::entropy_coef_max, "entropy_coef_max", Group::trainer, any_value(),
     "Its greatest value then."},
    {&GRPOConfig::entropy_coef_delta, "entropy_coef_delta", Group::trainer, any_value(),
     "How much it changes in a step."},
    {&GRPOConfig::entropy_target, "entropy_target", Group::trainer, any_value(),
     "It grows while the entropy is not above this, and has an effect only then."},
    {&GRPOConfig::max_tool_calling_iterations, "max_tool_calling_iterations", Group::trainer,
     any_value(), "Accepted and not used: there are no tools."},
    {&GRPOConfig::vllm_importance_sampling_correction, "vllm_importance_sampling_correction",
     Group::trainer, any_value(), "Accepted and not used."},
    {&GRPOConfig::vllm_importance_sampling_mode, "vllm_importance_sampling_mode", Group::trainer,
     any_value(), "Accepted and not used."},
    {&GRPOConfig::vllm_importance_sampling_clip_max, "vllm_importance_sampling_clip_max",
     Group::trainer, any_value(), "Accepted and not used."},
    {&GRPOConfig::vllm_importance_sampling_clip_min, "vllm_importance_sampling_clip_min",
     Group::trainer, any_value(), "Accepted and not used."},
    {&GRPOConfig::off_policy_mask_threshold, "off_policy_mask_threshold", Group::trainer, above(0),
     "Leaves out completions with negative advantage that have become more unlikely than this."},
    {&GRPOConfig::use_bias_correction_kl, "use_bias_correction_kl", Group::trainer, any_value(),
     "Multiplies the divergence by the ratio of the policies."},
    {&GRPOConfig::log_completions, "log_completions", Group::trainer, any_value(),
     "Prints completions with every log, and writes them to output_dir/completions as Parquet."},
    {&GRPOConfig::log_multimodal, "log_multimodal", Group::trainer, any_value(),
     "Accepted: there are no images."},
    {&GRPOConfig::num_completions_to_print, "num_completions_to_print", Group::trainer, any_value(),
     "How many completions are printed; unset: all."},
    {&GRPOConfig::log_unique_prompts, "log_unique_prompts", Group::trainer, any_value(),
     "Prints one completion of each prompt."},
    {&GRPOConfig::log_completions_hub_repo, "log_completions_hub_repo", Group::trainer, any_value(),
     "Accepted: gradus does not push to a hub."},
    {&GRPOConfig::use_transformers_continuous_batching, "use_transformers_continuous_batching",
     Group::trainer, any_value(), "Accepted and not used."},
    {&GRPOConfig::transformers_continuous_batching_config,
     "transformers_continuous_batching_config", Group::trainer, holds(Shape::dictionary),
     "Accepted and not used."},
    {&GRPOConfig::use_transformers_paged, "use_transformers_paged", Group::trainer, any_value(),
     "Accepted and not used."},
    {&GRPOConfig::vllm_importance_sampling_cap, "vllm_importance_sampling_cap", Group::trainer,
     any_value(), "Accepted and not used."},
};

/// Combinations that work, but not as their papers have them.
void warn_of_combinations(const GRPOConfig& args) {
  const auto& loss = args.loss_type;
  const bool by_sequence = args.importance_sampling_level == "sequence";
  if (loss == "luspo" && !by_sequence)
    log_warning("loss_type luspo is meant for --importance_sampling_level sequence.");
  if (loss == "vespo" && by_sequence)
    log_warning(
        "loss_type vespo weights whole sequences itself; leave importance_sampling_level at "
        "token.");
  if (by_sequence && (loss == "bnpo" || loss == "dr_grpo" || loss == "dapo" || loss == "cispo"))
    log_warning(fmt::format(
        "With importance_sampling_level sequence the loss_type {} weights each completion by its "
        "length; use grpo for GSPO.",
        loss));
}

}  // namespace

std::span<const OptionRow<GRPOConfig>> GRPOConfig::own_options() { return kGrpoRows; }

nlohmann::ordered_json GRPOConfig::to_dict() const { return arguments_to_dict(*this); }

GRPOConfig GRPOConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<GRPOConfig>(dict);
}

bool operator==(const GRPOConfig&, const GRPOConfig&) = default;

GRPOConfig::operator TrainingArguments() const { return plain_arguments(*this); }

GRPOConfig GRPOConfig::resolved() const {
  auto args = resolve_rollout_arguments(*this, "GRPO");
  if (args.sync_ref_model && args.beta == 0)
    refuse_options("sync_ref_model is on, but there is no reference because beta is 0",
                   "Set --beta, or leave sync_ref_model out.");
  if (args.loss_type == "dr_grpo" && !args.max_completion_length)
    refuse_options("the loss dr_grpo divides by max_completion_length, which is not set",
                   "Set --max_completion_length, or use another loss.");
  warn_of_combinations(args);
  return args;
}

}  // namespace gradus
