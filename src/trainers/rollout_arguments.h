#pragma once

#include <fmt/format.h>
#include <gradus/config/trainer_arguments.h>
#include <gradus/device/runtime.h>
#include <gradus/trainers/rollout_trainer.h>

#include "trainers/reference_policy.h"
#include "trainers/trl_options.h"

/// What the argument structs of GRPO, RLOO and on-policy distillation have in common. Their fields
/// have the same names.
namespace gradus {

/// The sampling options of the arguments, `generation_kwargs` last.
template <class Config>
GenerationOptions sampling_options(const Config& args) {
  nlohmann::json given = {{"temperature", args.temperature},
                          {"top_p", args.top_p},
                          {"top_k", args.top_k},
                          {"repetition_penalty", args.repetition_penalty},
                          {"do_sample", true}};
  if (args.min_p) given["min_p"] = *args.min_p;
  if (args.max_completion_length) given["max_new_tokens"] = *args.max_completion_length;
  if (args.generation_kwargs.is_object()) given.update(args.generation_kwargs);
  return GenerationConfig::from_json(given, "generation_kwargs").options;
}

/// The settings of resolved arguments, those of groups and steps excepted.
template <class Config>
RolloutSettings common_rollout_settings(const Config& args, const std::string& trainer) {
  RolloutSettings settings;
  settings.trainer = trainer;
  settings.max_completion_length = args.max_completion_length;
  settings.shuffle_dataset = args.shuffle_dataset;
  settings.pad_to_multiple_of = args.pad_to_multiple_of;
  settings.temperature = args.temperature;
  settings.generation = sampling_options(args);
  settings.chat_template_kwargs = args.chat_template_kwargs;
  settings.only_prompts = args.remove_unused_columns;
  settings.disable_dropout = args.disable_dropout;
  settings.log_completions = args.log_completions;
  settings.num_completions_to_print = args.num_completions_to_print;
  settings.log_unique_prompts = args.log_unique_prompts;
  return settings;
}

/// The settings of resolved arguments of a trainer with groups of completions.
template <class Config>
RolloutSettings rollout_settings(const Config& args, const std::string& trainer) {
  auto settings = common_rollout_settings(args, trainer);
  settings.num_generations = args.num_generations;
  settings.num_generations_eval = args.num_generations_eval.value_or(args.num_generations);
  settings.generation_batch_size = *args.generation_batch_size;
  settings.steps_per_generation = *args.steps_per_generation;
  settings.num_iterations = args.num_iterations;
  settings.mask_truncated_completions = args.mask_truncated_completions;
  return settings;
}

/// What holds for all of these trainers: decides `bf16`, resolves the common fields, and refuses
/// what gradus does not have.
template <class Config>
Config resolve_common_rollout(Config args) {
  if (!args.bf16) args.bf16 = !args.fp16;
  args = resolve_fields(args);
  if (args.use_vllm)
    refuse_options("use_vllm is on, but gradus samples completions with the model itself",
                   "Leave --use_vllm out: completions are made in one batch with a key-value "
                   "cache.");
  return args;
}

/// As trl completes and checks the arguments of trainers with groups of completions.
template <class Config>
Config resolve_rollout_arguments(Config args, const std::string& method) {
  const bool is_resolved = args.generation_batch_size && args.steps_per_generation;
  args = resolve_common_rollout(std::move(args));
  const auto processes = TrainingArguments(args).world_size();
  const auto step = args.per_device_train_batch_size * processes;
  if (args.auto_find_batch_size)
    refuse_options(
        fmt::format(
            "auto_find_batch_size does not go with {}: a smaller batch would cut the groups "
            "of completions",
            method),
        "Leave it out and lower --per_device_train_batch_size.");
  if (args.router_aux_loss_coef.value_or(0) != 0)
    refuse_options("router_aux_loss_coef is for mixtures of experts", "Leave it out.");
  if (is_resolved && *args.generation_batch_size != step * *args.steps_per_generation)
    refuse_options("generation_batch_size and steps_per_generation are both set",
                   "Set one of them: the other one follows from it.");
  if (args.generation_batch_size && *args.generation_batch_size % step != 0)
    refuse_options(
        fmt::format("generation_batch_size ({}) is not a multiple of the rows of a batch "
                    "in all processes ({})",
                    *args.generation_batch_size, step),
        "Change --generation_batch_size or --per_device_train_batch_size.");
  if (!args.steps_per_generation)
    args.steps_per_generation = args.generation_batch_size ? *args.generation_batch_size / step
                                                           : args.gradient_accumulation_steps;
  args.generation_batch_size = step * *args.steps_per_generation;
  const auto evaluated = args.num_generations_eval.value_or(args.num_generations);
  if (args.do_eval && args.eval_strategy != "no" &&
      args.per_device_eval_batch_size * processes % evaluated != 0)
    refuse_options(fmt::format("the rows of an evaluation batch in all processes ({} x {}) are not "
                               "a multiple of the completions of a prompt ({})",
                               args.per_device_eval_batch_size, processes, evaluated),
                   "Change --per_device_eval_batch_size or --num_generations_eval.");
  if (args.num_generations < 2)
    refuse_options(fmt::format("num_generations is {}, but {} compares completions of the same "
                               "prompt with each other",
                               args.num_generations, method),
                   "Set --num_generations to 2 or more.");
  if (*args.generation_batch_size % args.num_generations != 0)
    refuse_options(
        fmt::format("num_generations ({}) does not divide the completions that are made at once "
                    "({} = {} rows x {} processes x {} steps)",
                    args.num_generations, *args.generation_batch_size,
                    args.per_device_train_batch_size, processes, *args.steps_per_generation),
        "Change --num_generations, --per_device_train_batch_size or --steps_per_generation.");
  return args;
}

/// One weight for each reward. Throws `Error` G-TRL-1 when there is no reward, or another number of
/// weights.
std::vector<double> checked_weights(const std::vector<Reward>& rewards,
                                    const std::optional<std::vector<double>>& weights,
                                    const std::string& trainer);

/// The reference of a trainer with `beta`; null for 0. As `ReferencePolicy::of`.
std::shared_ptr<ReferencePolicy> reference_for(double beta, const std::shared_ptr<Model>& model,
                                               const std::shared_ptr<Model>& given,
                                               bool adapter_is_new, const std::string& trainer);
/// Moves the reference towards the model from time to time. Throws `Error` G-TRL-1 when it is the
/// model without its adapter.
CallbackHandle syncing_callback(ReferencePolicy& reference, double mixup_alpha, int64_t sync_steps,
                                const std::string& trainer);

/// The common options of a rollout trainer's options.
template <class Options, class Config>
RolloutOptions rollout_options(const Options& given, const Config& args,
                               const std::string& trainer) {
  refuse_unused({{"data_collator", bool(given.data_collator)},
                 {"compute_loss_func", bool(given.compute_loss_func)},
                 {"compute_metrics", bool(given.compute_metrics)},
                 {"preprocess_logits_for_metrics", bool(given.preprocess_logits_for_metrics)}},
                trainer);
  RolloutOptions options;
  options.trainer = plain_options(given, args, trainer);
  options.trainer.model = policy_to_train(given.model, given.peft_config, trainer);
  options.rollout_func = given.rollout_func;
  return options;
}

/// The same of a trainer with rewards and a reference. `args` are resolved.
template <class Options, class Config>
RolloutOptions rewarded_options(Options given, const Config& args, const std::string& trainer) {
  auto weights = checked_weights(given.reward_funcs, args.reward_weights, trainer);
  device::seed_all(args.seed);  // the adapter's matrices are random
  auto options = rollout_options(given, args, trainer);
  options.settings = rollout_settings(args, trainer);
  options.rewards = std::move(given.reward_funcs);
  options.reward_weights = std::move(weights);
  options.reward_tokenizers = std::move(given.reward_processing_classes);
  const auto reference = reference_for(args.beta, options.trainer.model, given.ref_model,
                                       given.peft_config.has_value(), trainer);
  if (args.sync_ref_model)
    options.trainer.callbacks.push_back(syncing_callback(*reference, args.ref_model_mixup_alpha,
                                                         args.ref_model_sync_steps, trainer));
  options.reference = reference;
  return options;
}

}  // namespace gradus
