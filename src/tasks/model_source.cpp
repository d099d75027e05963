#include "tasks/model_source.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/formats/checksum.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/peft_model.h>

#include "tasks/default_config.h"

namespace gradus::tasks {
namespace fs = std::filesystem;
namespace {

constexpr OptionRow<ModelFlags> kModelRows[] = {
    {&ModelFlags::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "The folder of the model to start from."},
    {&ModelFlags::config_name, "config_name", Group::model, any_value(),
     "A config.json, or a folder with one, in place of the model's; without a model: fresh "
     "weights."},
    {&ModelFlags::tokenizer_name, "tokenizer_name", Group::model, any_value(),
     "The folder of the tokenizer, when it is not the model's."},
    {&ModelFlags::cache_dir, "cache_dir", Group::model, any_value(),
     "Where prepared data is kept; default: gradus/datasets in the user's cache folder."},
    {&ModelFlags::use_fast_tokenizer, "use_fast_tokenizer", Group::model, any_value(),
     "Accepted for compatibility: there are only the fast ones."},
    {&ModelFlags::model_revision, "model_revision", Group::model, any_value(),
     "Accepted for compatibility: nothing is fetched from a hub."},
    {&ModelFlags::token, "token", Group::model, any_value(),
     "Accepted for compatibility: nothing is fetched from a hub."},
    {&ModelFlags::trust_remote_code, "trust_remote_code", Group::model, any_value(),
     "Accepted for compatibility: no code of a model folder is ever run."},
};

constexpr std::string_view kDtypes[] = {"auto", "bfloat16", "float16", "float32"};
constexpr OptionRow<FreshModelFlags> kFreshRows[] = {
    {&FreshModelFlags::model_type, "model_type", Group::model, any_value(),
     "Fresh weights of this architecture with its default configuration."},
    {&FreshModelFlags::config_overrides, "config_overrides", Group::model, any_value(),
     "Changes to that configuration: n_embd=64,n_layer=2"},
    {&FreshModelFlags::dtype, "dtype", Group::model, one_of(kDtypes),
     "Load the weights as this type; unset or auto: as they are stored."},
};

constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json",
                                           "special_tokens_map.json", "added_tokens.json"};

[[noreturn]] void refuse_flags(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-8", ErrorKind::usage, message, advice);
}

fs::path config_file(const std::string& name) {
  const auto path = expand_user(name);
  if (!fs::is_directory(path)) return path;
  return base_of_adapter(path).value_or(path) / "config.json";
}

// Where the tokenizer is looked for: a folder or a tokenizer.json.
std::optional<fs::path> tokenizer_path(const ModelFlags& flags) {
  if (flags.tokenizer_name) return expand_user(*flags.tokenizer_name);
  if (!flags.model_name_or_path) return std::nullopt;
  const auto folder = expand_user(*flags.model_name_or_path);
  if (fs::exists(folder / "tokenizer.json")) return folder;
  return base_of_adapter(folder).value_or(folder);
}

/// What peft calls a model with this head; unset for a head that peft has no name for.
std::optional<std::string> task_type_of(const std::string& class_name) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {"ForSequenceClassification", "SEQ_CLS"},
      {"ForTokenClassification", "TOKEN_CLS"},
      {"ForQuestionAnswering", "QUESTION_ANS"},
      {"ForCausalLM", "CAUSAL_LM"},
      {"LMHeadModel", "CAUSAL_LM"},
      {"ForConditionalGeneration", "SEQ_2_SEQ_LM"}};
  for (const auto& [end, type] : kTypes)
    if (class_name.ends_with(end)) return std::string(type);
  return std::nullopt;
}

void check_tokenizer(const ModelFlags& flags) {
  const auto path = tokenizer_path(flags);
  if (!path)
    refuse_flags("there is no tokenizer: neither --tokenizer_name nor --model_name_or_path is set",
                 "Name the folder of a tokenizer (tokenizer.json) with --tokenizer_name.");
  if (fs::is_directory(*path) ? fs::exists(*path / "tokenizer.json") : fs::exists(*path)) return;
  refuse_flags(fmt::format("there is no tokenizer in {}: expected a folder with tokenizer.json",
                           path->string()),
               "Name one with --tokenizer_name.");
}

}  // namespace

void add_options(OptionSet& options, ModelFlags& flags) {
  options.add(flags, std::span<const OptionRow<ModelFlags>>(kModelRows));
  add_options(options, flags.adapter);
}
void add_options(OptionSet& options, FreshModelFlags& flags) {
  options.add(flags, std::span<const OptionRow<FreshModelFlags>>(kFreshRows));
}

void check_model_flags(const ModelFlags& flags, const ModelNeeds& needs) {
  const auto* fresh = needs.fresh;
  if (flags.model_name_or_path && !fs::is_directory(expand_user(*flags.model_name_or_path)))
    refuse_flags("there is no folder " + *flags.model_name_or_path,
                 "Name the folder of a model (config.json and model.safetensors); gradus does not "
                 "fetch models from a hub.");
  if (flags.config_name && !fs::exists(config_file(*flags.config_name)))
    refuse_flags("there is no configuration " + *flags.config_name,
                 "Name a config.json or a folder with one.");
  if (fresh != nullptr && fresh->config_overrides &&
      (flags.config_name || flags.model_name_or_path))
    refuse_flags(
        "--config_overrides goes with --model_type alone, not with --config_name or "
        "--model_name_or_path",
        "Leave one out, or change the config.json.");
  if (!flags.model_name_or_path && fresh == nullptr && !flags.config_name)
    refuse_flags("there is no model to start from: --model_name_or_path is not set",
                 "Name the folder of a model, or a configuration for fresh weights with "
                 "--config_name.");
  if (!flags.model_name_or_path && !needs.do_train)
    refuse_flags("there is no model to use: --model_name_or_path is not set",
                 "Name the folder of a trained model.");
  if (!flags.model_name_or_path && !flags.config_name && !fresh->model_type)
    refuse_flags(
        "there is no model: expected --model_name_or_path, or --config_name or --model_type for "
        "fresh weights",
        "Name one.");
  if (!flags.model_name_or_path && !flags.config_name)
    load_config(flags, *fresh);  // says what is wrong with type and overrides
  if (needs.tokenizer) check_tokenizer(flags);
}

nlohmann::json load_config(const ModelFlags& flags, const FreshModelFlags& fresh) {
  if (flags.config_name) return read_json(config_file(*flags.config_name));
  if (flags.model_name_or_path) return read_json(config_file(*flags.model_name_or_path));
  auto config = default_config(fresh.model_type.value_or(""));
  return fresh.config_overrides ? with_overrides(std::move(config), *fresh.config_overrides)
                                : config;
}

std::shared_ptr<Tokenizer> load_tokenizer(const ModelFlags& flags, const nlohmann::json& settings) {
  const auto path = tokenizer_path(flags);
  if (!path) return nullptr;
  if (!fs::is_directory(*path)) return Tokenizer::from_file(*path);
  return fs::exists(*path / "tokenizer.json") ? Tokenizer::from_pretrained(*path, settings)
                                              : nullptr;
}

std::shared_ptr<PreTrainedModel> load_model(ModelTask task, const ModelFlags& flags,
                                            const FreshModelFlags& fresh,
                                            const nlohmann::json& changes,
                                            bool ignore_mismatched_sizes) {
  auto config = flags.config_name || !flags.model_name_or_path ? load_config(flags, fresh)
                                                               : nlohmann::json::object();
  if (!changes.is_null()) {
    if (changes.contains("num_labels"))
      for (const auto* table : {"id2label", "label2id"}) config.erase(table);
    config.update(changes);
  }
  std::optional<torch::Dtype> dtype;
  if (fresh.dtype && *fresh.dtype != "auto") dtype = dtype_named(*fresh.dtype);
  if (flags.model_name_or_path)
    return model_from_pretrained(task, *flags.model_name_or_path,
                                 {.dtype = dtype,
                                  .ignore_mismatched_sizes = ignore_mismatched_sizes,
                                  .config = std::move(config)});
  const auto model = model_from_config(task, config);
  int64_t parameters = 0;
  for (const auto& each : model->parameters()) parameters += each.numel();
  log_info(fmt::format("Training new model from scratch - Total size={:.2f}M params",
                       double(parameters) / (1 << 20)));
  return model;
}

std::shared_ptr<PreTrainedModel> with_adapter(std::shared_ptr<PreTrainedModel> model,
                                              const ModelFlags& flags) {
  auto config = lora_config(flags.adapter, task_type_of(model->class_name()));
  if (!config) return model;
  if (dynamic_cast<const PeftModel*>(model.get()) != nullptr)
    refuse_flags("--use_peft starts a new adapter, but --model_name_or_path names one already",
                 "Name the base model, or merge the adapter first: gradus merge.");
  config->base_model_name_or_path = flags.model_name_or_path;
  return get_peft_model(std::move(model), std::move(*config));
}

int64_t embedding_rows(PreTrainedModel& model) {
  if (const auto* table = dynamic_cast<layers::Embedding*>(model.input_embedding_module()))
    return table->weight.size(0);
  // An exported model has a table, but no layer of ours that holds it.
  const auto config = model.config();
  const auto found = config.find("vocab_size");
  return found != config.end() && found->is_number_integer() ? found->get<int64_t>()
                                                             : std::numeric_limits<int64_t>::max();
}

void grow_embeddings(PreTrainedModel& model, const TokenizerLike& tokenizer) {
  if (model.input_embedding_module() != nullptr &&
      tokenizer.full_vocab_size() > embedding_rows(model))
    model.resize_token_embeddings(tokenizer.full_vocab_size());
}

void check_ids(std::span<const int64_t> ids, int64_t embedding_rows, const std::string& where) {
  for (const auto id : ids)
    if (id < 0 || id >= embedding_rows)
      throw Error("G-TASK-12", ErrorKind::data,
                  fmt::format("{}: token id {} is outside the model's vocabulary, which has {} ids",
                              where, id, embedding_rows),
                  "Use the tokenizer of the model's own folder, or data that was made with it.");
}

std::string tokenizer_key(const ModelFlags& flags) {
  const auto path = tokenizer_path(flags);
  if (!path) return "none";
  std::string key;
  const auto add = [&](const fs::path& file) {
    if (!fs::is_regular_file(file)) return;
    const auto sum = file_checksum(file);
    key += fmt::format("{} {} {:08x};", file.filename().string(), sum.size, sum.checksum);
  };
  if (!fs::is_directory(*path))
    add(*path);
  else
    for (const auto* name : kTokenizerFiles) add(*path / name);
  return key;
}

}  // namespace gradus::tasks
