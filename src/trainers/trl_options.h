#pragma once

#include <gradus/models/lora_config.h>
#include <gradus/text/tokenizer.h>
#include <gradus/train/trainer_options.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

// What the options of trl's trainers have in common. `who` is the trainer's name in messages.
namespace gradus {

/// Throws `Error` G-TRL-1 (usage).
[[noreturn]] void refuse_options(const std::string& message, const std::string& advice);

/// What the arguments say of the tokenizer.
struct TokenizerSettings {
  std::optional<std::string> eos_token = {};
  std::optional<std::string> pad_token = {};
  std::optional<std::string> chat_template_path = {};
};

/// The tokenizer with the end and padding tokens and the chat template of the arguments.
std::shared_ptr<Tokenizer> trl_tokenizer(const std::shared_ptr<TokenizerLike>& given,
                                         const TokenizerSettings& settings, const std::string& who);

/// The causal language model to train: with an adapter, if one is asked for.
std::shared_ptr<Model> policy_to_train(const std::shared_ptr<Model>& given,
                                       const std::optional<LoraConfig>& adapter,
                                       const std::string& who);
/// `given` with an adapter, if one is asked for.
std::shared_ptr<Model> with_adapter(const std::shared_ptr<Model>& given,
                                    const std::optional<LoraConfig>& adapter);

/// How many tokens the model can take, where it has a table of positions.
std::optional<int64_t> longest_input(const Model& model);

/// The sets for evaluation after `prepare(rows, name)`.
template <class Prepare>
EvalDatasets prepared_sets(const EvalDatasets& sets, const Prepare& prepare) {
  if (!sets) return {};
  if (!sets.is_named()) return prepare(sets.single(), "eval_dataset");
  EvalDatasets::Named named;
  for (const auto& [name, set] : sets.named()) named.emplace_back(name, prepare(set, name));
  return EvalDatasets(std::move(named));
}

/// Applies `prepare(rows, name)` to the training set and to the sets for evaluation.
template <class Prepare>
void prepare_sets(TrainerOptions& options, const std::string& who, const Prepare& prepare) {
  if (!options.train_dataset) refuse_options(who + " has no train_dataset", "Set `train_dataset`.");
  options.train_dataset = prepare(options.train_dataset, "train_dataset");
  options.eval_dataset = prepared_sets(options.eval_dataset, prepare);
}

/// The members that all options have, for the constructor of `TrainerOptions`; without model,
/// collator and tokenizer.
template <class Given, class Config>
TrainerOptions plain_options(const Given& given, const Config& args) {
  TrainerOptions options;
  options.args = args;
  options.train_dataset = given.train_dataset;
  options.eval_dataset = given.eval_dataset;
  options.compute_metrics = given.compute_metrics;
  options.callbacks = given.callbacks;
  options.optimizers = given.optimizers;
  options.optimizer_factory = given.optimizer_factory;
  options.preprocess_logits_for_metrics = given.preprocess_logits_for_metrics;
  return options;
}

/// The other way round, for the table of trainers and for tasks.
template <class Given, class Config>
Given trl_options(TrainerOptions options, Config args) {
  Given given;
  given.model = std::move(options.model);
  given.args = std::move(args);
  given.data_collator = std::move(options.data_collator);
  given.train_dataset = std::move(options.train_dataset);
  given.eval_dataset = std::move(options.eval_dataset);
  given.processing_class = std::move(options.processing_class);
  given.compute_metrics = std::move(options.compute_metrics);
  given.callbacks = std::move(options.callbacks);
  given.optimizers = std::move(options.optimizers);
  given.optimizer_factory = std::move(options.optimizer_factory);
  given.preprocess_logits_for_metrics = std::move(options.preprocess_logits_for_metrics);
  return given;
}

/// The arguments with what trl derives from others.
template <class Config>
Config with_trl_rules(Config args) {
  if (!args.bf16) args.bf16 = !args.fp16;
  if (args.activation_offloading && args.gradient_checkpointing) {
    if (args.gradient_checkpointing_kwargs.is_null())
      args.gradient_checkpointing_kwargs = nlohmann::json::object();
    args.gradient_checkpointing_kwargs["offload"] = true;
  }
  return args;
}

}  // namespace gradus
