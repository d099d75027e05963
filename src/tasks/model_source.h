#pragma once

#include <gradus/config/option_set.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>

#include "tasks/adapter_flags.h"

namespace gradus::tasks {

/// The flags of HF's scripts that name model and tokenizer, and those of an adapter.
struct ModelFlags {
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::optional<std::string> config_name = std::nullopt;
  std::optional<std::string> tokenizer_name = std::nullopt;
  std::optional<std::string> cache_dir = std::nullopt;
  bool use_fast_tokenizer = true;
  std::string model_revision = "main";
  std::optional<std::string> token = std::nullopt;
  bool trust_remote_code = false;
  AdapterFlags adapter = {};
};
void add_options(OptionSet& options, ModelFlags& flags);

/// Those of language models, whose weights may be fresh.
struct FreshModelFlags {
  std::optional<std::string> model_type = std::nullopt;
  std::optional<std::string> config_overrides = std::nullopt;
  std::optional<std::string> dtype = std::nullopt;
};
void add_options(OptionSet& options, FreshModelFlags& flags);

/// What a task wants of the flags.
struct ModelNeeds {
  const FreshModelFlags* fresh = nullptr;  ///< null: there must be a model to start from
  bool do_train = true;                    ///< without training there must be one, too
  bool tokenizer = true;
};
/// Looks at names alone. Throws G-TASK-8 (usage).
void check_model_flags(const ModelFlags& flags, const ModelNeeds& needs);

/// The config.json of `--config_name` or of the model's folder, or the default of `--model_type`
/// with overrides.
nlohmann::json load_config(const ModelFlags& flags, const FreshModelFlags& fresh = {});
/// The tokenizer of `--tokenizer_name` or of the model's folder; null when neither has one.
/// `settings` replace keys of tokenizer_config.json.
std::shared_ptr<Tokenizer> load_tokenizer(const ModelFlags& flags,
                                          const nlohmann::json& settings = nullptr);
/// Weights of the model's folder, or fresh ones. `changes` replace keys of the configuration.
std::shared_ptr<PreTrainedModel> load_model(ModelTask task, const ModelFlags& flags,
                                            const FreshModelFlags& fresh,
                                            const nlohmann::json& changes,
                                            bool ignore_mismatched_sizes = false);

/// The model with the adapter that --use_peft asks for; the model itself without it. Its task type
/// is that of the model's head. Throws G-TASK-8 when the model has an adapter already.
std::shared_ptr<PreTrainedModel> with_adapter(std::shared_ptr<PreTrainedModel> model,
                                              const ModelFlags& flags);

/// Ids the model has vectors for.
int64_t embedding_rows(PreTrainedModel& model);
/// Makes room for all ids of the tokenizer; never takes any away.
void grow_embeddings(PreTrainedModel& model, const TokenizerLike& tokenizer);
/// Throws G-TASK-12 when an id has no vector.
void check_ids(std::span<const int64_t> ids, int64_t embedding_rows, const std::string& where);
/// What stands for a tokenizer in cache keys: the contents of its files.
std::string tokenizer_key(const ModelFlags& flags);

}  // namespace gradus::tasks
