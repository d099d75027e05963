#include <gradus/trainers/rloo.h>

#include <ATen/ops/min.h>

#include "trainers/advantages.h"
#include "trainers/metric_log.h"
#include "trainers/rollout_arguments.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kRlooName = "RLOOTrainer";

constexpr OptionRow<RLOOConfig> kRlooRows[] = {
    {&RLOOConfig::model_init_kwargs, "model_init_kwargs", Group::trainer, holds(Shape::dictionary),
     "Accepted; the model is given as an object."},
    {&RLOOConfig::router_aux_loss_coef, "router_aux_loss_coef", Group::trainer, at_least(0),
     "Only for mixtures of experts, which gradus does not have: must stay unset or 0."},
    {&RLOOConfig::disable_dropout, "disable_dropout", Group::trainer, any_value(),
     "Drops nothing in training."},
    {&RLOOConfig::num_generations, "num_generations", Group::trainer, at_least(1),
     "Completions of each prompt."},
    {&RLOOConfig::num_generations_eval, "num_generations_eval", Group::trainer, at_least(1),
     "The same in evaluations; unset: as in training."},
    {&RLOOConfig::max_completion_length, "max_completion_length", Group::trainer, at_least(1),
     "Most tokens of a completion."},
    {&RLOOConfig::ds3_gather_for_generation, "ds3_gather_for_generation", Group::trainer,
     any_value(), "Accepted: for DeepSpeed."},
    {&RLOOConfig::shuffle_dataset, "shuffle_dataset", Group::trainer, any_value(),
     "Takes the prompts in a new order in every pass."},
    {&RLOOConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Rounds padded lengths up."},
    {&RLOOConfig::generation_batch_size, "generation_batch_size", Group::trainer, at_least(1),
     "Completions that are made at once, in all processes; unset: those of steps_per_generation "
     "steps."},
    {&RLOOConfig::steps_per_generation, "steps_per_generation", Group::trainer, at_least(1),
     "Batches that completions are made for at once; unset: gradient_accumulation_steps."},
    {&RLOOConfig::temperature, "temperature", Group::trainer, above(0),
     "Of sampling; the log probabilities of the loss are divided by it, too."},
    {&RLOOConfig::top_p, "top_p", Group::trainer, within(0, 1),
     "Samples from the most likely tokens up to this probability."},
    {&RLOOConfig::top_k, "top_k", Group::trainer, at_least(0),
     "Samples from the k most likely tokens; 0: from all."},
    {&RLOOConfig::min_p, "min_p", Group::trainer, within(0, 1),
     "Least probability of a token, relative to the most likely one."},
    {&RLOOConfig::generation_kwargs, "generation_kwargs", Group::trainer, holds(Shape::dictionary),
     "Further options of generation; they replace those above."},
    {&RLOOConfig::chat_template_kwargs, "chat_template_kwargs", Group::trainer,
     holds(Shape::dictionary), "Variables for the chat template."},
    {&RLOOConfig::repetition_penalty, "repetition_penalty", Group::trainer, above(0),
     "Above 1 repeats become unlikely."},
    {&RLOOConfig::cache_implementation, "cache_implementation", Group::trainer, any_value(),
     "Accepted: gradus has one key-value cache."},
    {&RLOOConfig::use_vllm, "use_vllm", Group::trainer, any_value(),
     "Must stay false: gradus samples with the model itself."},
    {&RLOOConfig::vllm_mode, "vllm_mode", Group::trainer, any_value(), "Accepted and not used."},
    {&RLOOConfig::vllm_model_impl, "vllm_model_impl", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_enable_sleep_mode, "vllm_enable_sleep_mode", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_structured_outputs_regex, "vllm_structured_outputs_regex", Group::trainer,
     any_value(), "Accepted and not used."},
    {&RLOOConfig::vllm_server_base_url, "vllm_server_base_url", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_server_host, "vllm_server_host", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_server_port, "vllm_server_port", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_server_timeout, "vllm_server_timeout", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_group_port, "vllm_group_port", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_gpu_memory_utilization, "vllm_gpu_memory_utilization", Group::trainer,
     any_value(), "Accepted and not used."},
    {&RLOOConfig::vllm_max_model_length, "vllm_max_model_length", Group::trainer, any_value(),
     "Accepted and not used."},
    {&RLOOConfig::vllm_tensor_parallel_size, "vllm_tensor_parallel_size", Group::trainer,
     any_value(), "Accepted and not used."},
    {&RLOOConfig::beta, "beta", Group::trainer, at_least(0),
     "Weight of the divergence from the reference model, which is taken off the rewards."},
    {&RLOOConfig::num_iterations, "num_iterations", Group::trainer, at_least(1),
     "How often each generation batch is trained on."},
    {&RLOOConfig::epsilon, "epsilon", Group::trainer, at_least(0),
     "Ratios below 1 - epsilon are clipped."},
    {&RLOOConfig::epsilon_high, "epsilon_high", Group::trainer, at_least(0),
     "Ratios above 1 + epsilon_high are clipped; unset: as epsilon."},
    {&RLOOConfig::reward_weights, "reward_weights", Group::trainer, any_value(),
     "One weight for each reward; unset: 1."},
    {&RLOOConfig::normalize_advantages, "normalize_advantages", Group::trainer, any_value(),
     "Gives the advantages of a batch mean 0 and deviation 1."},
    {&RLOOConfig::reward_clip_range, "reward_clip_range", Group::trainer, any_value(),
     "Bounds of the rewards, two numbers."},
    {&RLOOConfig::mask_truncated_completions, "mask_truncated_completions", Group::trainer,
     any_value(), "Completions without end do not count in the loss."},
    {&RLOOConfig::sync_ref_model, "sync_ref_model", Group::trainer, any_value(),
     "Moves the reference towards the model from time to time."},
    {&RLOOConfig::ref_model_mixup_alpha, "ref_model_mixup_alpha", Group::trainer, within(0, 1),
     "Share of the model in the reference after such a move."},
    {&RLOOConfig::ref_model_sync_steps, "ref_model_sync_steps", Group::trainer, at_least(1),
     "Steps between two moves."},
    {&RLOOConfig::log_completions, "log_completions", Group::trainer, any_value(),
     "Prints completions with every log, and writes them to output_dir/completions as Parquet."},
    {&RLOOConfig::log_multimodal, "log_multimodal", Group::trainer, any_value(),
     "Accepted: there are no images."},
    {&RLOOConfig::num_completions_to_print, "num_completions_to_print", Group::trainer, any_value(),
     "How many completions are printed; unset: all."},
    {&RLOOConfig::log_unique_prompts, "log_unique_prompts", Group::trainer, any_value(),
     "Prints one completion of each prompt."},
    {&RLOOConfig::use_transformers_continuous_batching, "use_transformers_continuous_batching",
     Group::trainer, any_value(), "Accepted and not used."},
    {&RLOOConfig::transformers_continuous_batching_config,
     "transformers_continuous_batching_config", Group::trainer, holds(Shape::dictionary),
     "Accepted and not used."},
    {&RLOOConfig::use_transformers_paged, "use_transformers_paged", Group::trainer, any_value(),
     "Accepted and not used."},
};

}  // namespace

std::span<const OptionRow<RLOOConfig>> RLOOConfig::own_options() { return kRlooRows; }

nlohmann::ordered_json RLOOConfig::to_dict() const { return arguments_to_dict(*this); }

RLOOConfig RLOOConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<RLOOConfig>(dict);
}

bool operator==(const RLOOConfig&, const RLOOConfig&) = default;

RLOOConfig::operator TrainingArguments() const { return plain_arguments(*this); }

RLOOConfig RLOOConfig::resolved() const {
  auto args = resolve_rollout_arguments(*this, "RLOO");
  if (args.sync_ref_model && args.beta == 0)
    refuse_options("sync_ref_model is on, but there is no reference because beta is 0",
                   "Set --beta, or leave sync_ref_model out.");
  if (args.reward_clip_range && args.reward_clip_range->size() != 2)
    refuse_options(fmt::format("reward_clip_range has {} numbers", args.reward_clip_range->size()),
                   "Give two: the least and the greatest reward.");
  return args;
}

RLOOTrainer::RLOOTrainer(RLOOTrainerOptions options)
    : RLOOTrainer(options.args.resolved(),
                  rewarded_options(options, options.args.resolved(), kRlooName)) {}

RLOOTrainer::RLOOTrainer(RLOOConfig args, RolloutOptions options)
    : RolloutTrainer(std::move(options), args.to_dict()), args_(std::move(args)) {
  loss_is_scaled_for_ga = false;
}

RLOOTrainer::~RLOOTrainer() = default;

void RLOOTrainer::score(Scored& scored, MetricBatch& metrics) {
  const auto mask = scored.batch["completion_mask"].to(torch::kFloat);
  const auto old = log_probs_of(scored);
  scored.batch.set("old_logps", (old * mask).sum(1));
  const auto rewards = total_of(rewards_of(scored, metrics));
  auto totals = rewards;
  if (const auto& range = args_.reward_clip_range) totals = totals.clamp((*range)[0], (*range)[1]);
  if (has_reference()) {
    const auto divergence = (old - reference_log_probs_of(scored)) * mask;
    totals = totals - args_.beta * gathered(divergence.sum(-1));
    note_mean(metrics, "kl", divergence, mask);
  }
  set_advantages(scored, rewards,
                 leave_one_out_advantages(totals, group_size(scored), args_.normalize_advantages),
                 metrics);
}

StepTraits RLOOTrainer::step_traits() const {
  return plain_step(/*reads_logits=*/!is_exactly<RLOOTrainer>());
}

Loss RLOOTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor>) {
  const bool training = model.is_training();
  const auto mask = inputs["completion_mask"].to(torch::kFloat);
  const auto& advantages = inputs["advantages"];
  const auto [log_probs, entropy] = token_values(model, inputs);
  const auto ratio = ((log_probs * mask).sum(1) - inputs["old_logps"]).exp();
  const auto least = 1 - args_.epsilon, most = 1 + args_.epsilon_high.value_or(args_.epsilon);
  Loss result{.loss = -at::min(ratio * advantages, ratio.clamp(least, most) * advantages).mean()};

  const torch::NoGradGuard no_grad;
  MetricBatch metrics;
  note_mean(metrics, "entropy", entropy, mask);
  const auto is_low = ratio.lt(least).logical_and(advantages.lt(0)).to(torch::kFloat);
  const auto is_high = ratio.gt(most).logical_and(advantages.gt(0)).to(torch::kFloat);
  metrics.mean("clip_ratio/low_mean", is_low);
  metrics.least("clip_ratio/low_min", is_low.min());
  metrics.mean("clip_ratio/high_mean", is_high);
  metrics.greatest("clip_ratio/high_max", is_high.max());
  metrics.mean("clip_ratio/region_mean", is_low + is_high);
  note(metrics, training);
  return result;
}

}  // namespace gradus
