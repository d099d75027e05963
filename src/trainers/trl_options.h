#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/models/lora_config.h>
#include <gradus/text/tokenizer.h>
#include <gradus/train/trainer_options.h>

#include <initializer_list>
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

/// How many tokens a model of the library knows; unset for others.
std::optional<int64_t> known_tokens(const Model& model);

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

/// A member of a trainer's options that it has no use for.
struct UnusedMember {
  const char* name;
  bool is_set;
};
/// Throws `Error` G-TRL-1 for the first one that is set.
void refuse_unused(std::initializer_list<UnusedMember> members, const std::string& who);

/// The options of the base class, with resolved arguments.
template <class Given, class Config>
TrainerOptions plain_options(const Given& given, const Config& args, const std::string& who) {
  refuse_unused({{"model_init", bool(given.model_init)}}, who);
  auto options = convert_options<TrainerOptions>(given);
  options.args = args;
  return options;
}

/// The fields of `TrainingArguments`, with `bf16` decided.
template <class Config>
TrainingArguments plain_arguments(const Config& args) {
  auto plain = common_arguments(args);
  plain.bf16 = args.bf16.value_or(!args.fp16);
  return plain;
}

/// The arguments with what trl derives from others.
template <class Config>
Config with_trl_rules(Config args) {
  if (!args.bf16) args.bf16 = !args.fp16;
  if (args.activation_offloading &&
      (args.gradient_checkpointing || args.activation_memory_budget)) {
    if (args.gradient_checkpointing_kwargs.is_null())
      args.gradient_checkpointing_kwargs = nlohmann::json::object();
    args.gradient_checkpointing_kwargs["offload"] = true;
  }
  return args;
}

}  // namespace gradus
