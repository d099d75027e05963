#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/exported_model.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/peft_model.h>
#include <gradus/models/scripted_model.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>
#include <mutex>

#include "core/registry.h"
#include "models/builtin_models.h"

namespace gradus {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::pair<ModelTask, std::string>, ModelFactory> factories;
  std::map<std::string, ModelDefaults> defaults;
};

Registry& registry() {
  static Registry instance;
  static const bool filled = [] {
    for (auto& model : builtin_models())
      instance.factories[{model.task, model.model_type}] = std::move(model.factory);
    for (auto& entry : builtin_defaults()) {
      const auto type = entry.model_type;
      instance.defaults.emplace(type, std::move(entry));
    }
    return true;
  }();
  static_cast<void>(filled);
  return instance;
}

ModelFactory find_factory(ModelTask task, const nlohmann::json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  const auto known = known_model_types(task);
  const auto type = reader.optional_text("model_type");
  if (!type)
    throw Error("G-MODEL-6", ErrorKind::model, fmt::format("{} has no model_type", where),
                fmt::format("Add \"model_type\", one of {}.", fmt::join(known, ", ")));
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.factories.find({task, *type});
  if (found != all.factories.end()) return found->second;
  const bool other_head =
      std::any_of(all.factories.begin(), all.factories.end(),
                  [&](const auto& entry) { return entry.first.second == *type; });
  const auto near = did_you_mean(*type, known);
  throw Error(
      "G-MODEL-6", ErrorKind::model,
      other_head
          ? fmt::format("{}: model_type \"{}\" has no head for {}", where, *type, task_name(task))
          : fmt::format("{}: unknown model_type \"{}\" for {}", where, *type, task_name(task)),
      fmt::format("{}{}Known are {}. Add your own with register_model().", near,
                  near.empty() ? "" : " ", fmt::join(known, ", ")));
}

/// Settings of any architecture that change what its weights mean and that no model here reads.
void check_computable(const nlohmann::json& config, const std::string& where) {
  const std::array<std::pair<const char*, const char*>, 2> unread = {{
      {"quantization_config",
       "Load the model in Python, dequantize it (model.dequantize()), and save it in float32, "
       "bfloat16 or float16."},
      {"per_layer_config", "Only models whose layers are all alike can be computed here."},
  }};
  for (const auto& [name, advice] : unread) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null() || found->empty()) continue;
    throw Error("G-MODEL-5", ErrorKind::model,
                fmt::format("{}: {} must be absent, received {}", where, name,
                            dump_json(*found).substr(0, 60)),
                advice);
  }
}

/// Runs a factory; what torch says about impossible sizes becomes our error.
std::shared_ptr<PreTrainedModel> build(const ModelFactory& factory, const nlohmann::json& config,
                                       const std::string& where) {
  check_computable(config, where);
  try {
    return factory(config);
  } catch (const c10::Error& error) {
    throw Error(
        "G-MODEL-5", ErrorKind::model,
        fmt::format("{}: cannot build the model: {}", where, error.what_without_backtrace()),
        "Check the sizes in config.json.");
  }
}

/// Of a folder with config.json only: what the file itself says, as in transformers. The start
/// token of the decoder is the architecture's own where the file names none.
GenerationConfig generation_settings(const nlohmann::json& config,
                                     const GenerationOptions& defaults) {
  auto settings = GenerationConfig::from_config_file(config);
  if (!settings.options.decoder_start_token_id)
    settings.options.decoder_start_token_id = defaults.decoder_start_token_id;
  return settings;
}

std::optional<torch::Dtype> config_dtype(const nlohmann::json& config) {
  for (const auto* name : {"dtype", "torch_dtype"}) {
    const auto found = config.find(name);
    if (found != config.end() && found->is_string()) return dtype_named(found->get<std::string>());
  }
  return std::nullopt;
}

}  // namespace

std::string task_name(ModelTask task) {
  switch (task) {
    case ModelTask::base: return "hidden states";
    case ModelTask::causal_lm: return "causal language modeling";
    case ModelTask::masked_lm: return "masked language modeling";
    case ModelTask::sequence_classification: return "sequence classification";
    case ModelTask::token_classification: return "token classification";
    case ModelTask::question_answering: return "question answering";
    case ModelTask::seq2seq_lm: return "sequence-to-sequence language modeling";
    case ModelTask::text_encoding: return "text encoding";
    case ModelTask::image_classification: return "image classification";
    case ModelTask::ctc: return "speech recognition (CTC)";
    case ModelTask::audio_pretraining: return "pre-training on audio";
  }
  return "?";
}

void register_model(const std::string& model_type, ModelTask task, ModelFactory factory) {
  check_registration("register_model", model_type, bool(factory));
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto [place, added] =
      all.factories.emplace(std::pair(task, model_type), std::move(factory));
  if (!added) throw_registered_twice("register_model", model_type + "' for '" + task_name(task));
}

void register_model_defaults(ModelDefaults defaults) {
  check_registration("register_model_defaults", defaults.model_type, defaults.config.is_object());
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto type = defaults.model_type;
  const auto [place, added] = all.defaults.emplace(type, std::move(defaults));
  if (!added) throw_registered_twice("register_model_defaults", type);
}

std::optional<ModelDefaults> model_defaults(const std::string& model_type) {
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.defaults.find(model_type);
  return found == all.defaults.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> model_types_with_defaults() {
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [type, defaults] : all.defaults) names.push_back(type);
  return names;
}

std::vector<std::string> known_model_types(ModelTask task) {
  auto& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [key, factory] : all.factories)
    if (key.first == task) names.push_back(key.second);
  return names;
}

std::shared_ptr<PreTrainedModel> model_from_config(ModelTask task, const nlohmann::json& config) {
  const auto model = build(find_factory(task, config, "config.json"), config, "config.json");
  model->init_weights();
  if (const auto dtype = config_dtype(config)) model->to(*dtype);
  return model;
}

namespace {

std::shared_ptr<PreTrainedModel> model_from_folder(ModelTask task,
                                                   const std::filesystem::path& folder,
                                                   const PretrainedOptions& options) {
  const auto file = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) || !std::filesystem::exists(file, ignored))
    throw Error(
        "G-MODEL-7", ErrorKind::model,
        fmt::format("{} is not a model folder: {}", folder.string(),
                    std::filesystem::is_directory(folder, ignored) ? "it holds no config.json"
                                                                   : "there is no such folder"),
        "Give the path of a folder that save_pretrained wrote or that was downloaded from a hub "
        "(config.json and model.safetensors).");
  auto config = read_json(file);
  const ConfigReader checked(config, file.string());
  if (options.config.contains("num_labels")) {
    config.erase("id2label");
    config.erase("label2id");
  }
  config.update(options.config);
  const auto model = build(find_factory(task, config, file.string()), config, file.string());
  auto load = options;
  if (!load.dtype) load.dtype = config_dtype(config);
  model->load_weights(folder, load);
  if (std::filesystem::exists(folder / "generation_config.json", ignored))
    model->generation_config = GenerationConfig::load(folder / "generation_config.json");
  else if (model->can_generate())
    model->generation_config = generation_settings(config, model->generation_config.options);
  model->eval();
  return model;
}

/// The labels of the head that an adapter's folder holds, if it does.
std::optional<int64_t> labels_of_head(const NamedTensors& adapter) {
  for (const auto& [key, tensor] : adapter)
    for (const auto* head : {".score.weight", ".classifier.weight", ".classifier.out_proj.weight"})
      if (key.ends_with(head) && tensor.dim() == 2) return tensor.size(0);
  return std::nullopt;
}

/// The tokens of the table that an adapter's folder holds for `model`; 0 without one.
int64_t tokens_of_table(const NamedTensors& adapter, PreTrainedModel& model) {
  for (const auto& item : model.named_module().named_modules()) {
    if (item.value().get() != model.input_embedding_module()) continue;
    for (const auto& [key, tensor] : adapter) {
      if (tensor.dim() != 2) continue;
      for (const auto* end : {".weight", ".base_layer.weight"})
        if (key == "base_model.model." + item.key() + end) return tensor.size(0);
    }
  }
  return 0;
}

/// What exported.json calls a task; empty for tasks that it has no name for.
std::string exported_name(ModelTask task) {
  switch (task) {
    case ModelTask::causal_lm: return "causal_lm";
    case ModelTask::masked_lm: return "masked_lm";
    case ModelTask::sequence_classification: return "sequence_classification";
    case ModelTask::token_classification: return "token_classification";
    case ModelTask::question_answering: return "question_answering";
    case ModelTask::seq2seq_lm: return "seq2seq_lm";
    case ModelTask::image_classification: return "image_classification";
    case ModelTask::ctc: return "ctc";
    default: return "";
  }
}

template <class Exported>
std::shared_ptr<PreTrainedModel> exported_model(ModelTask task, const std::filesystem::path& folder,
                                                const PretrainedOptions& options) {
  auto model = Exported::load(folder, options);
  const auto& made_for = model->exported_task();
  if (!made_for.empty() && made_for != exported_name(task))
    throw Error("G-EXPORT-5", ErrorKind::model,
                fmt::format("{} was exported for {}, not for {}", folder.string(), made_for,
                            task_name(task)),
                "Export the model again with the --auto_class of this task.");
  return model;
}

}  // namespace

std::shared_ptr<PreTrainedModel> base_for_adapter(ModelTask task, const std::filesystem::path& base,
                                                  const std::filesystem::path& adapter,
                                                  PretrainedOptions options) {
  const auto folder = expand_user(base), config = folder / "config.json";
  const auto tensors = read_adapter_folder(adapter);
  const auto labels = labels_of_head(tensors);
  std::error_code ignored;
  if (labels && !options.config.contains("num_labels") &&
      (task == ModelTask::sequence_classification || task == ModelTask::token_classification) &&
      std::filesystem::exists(config, ignored) && *labels != num_labels(read_json(config)))
    options.config["num_labels"] = *labels;
  auto model = model_from_folder(task, folder, options);
  const auto* table = dynamic_cast<layers::Embedding*>(model->input_embedding_module());
  const auto tokens = tokens_of_table(tensors, *model);
  if (table != nullptr && tokens > table->weight.size(0)) model->resize_token_embeddings(tokens);
  return model;
}

std::shared_ptr<PreTrainedModel> model_from_pretrained(ModelTask task,
                                                       const std::filesystem::path& directory,
                                                       const PretrainedOptions& options) {
  const auto folder = expand_user(directory);
  if (ExportedModel::is_exported(folder))
    return exported_model<ExportedModel>(task, folder, options);
  if (ScriptedModel::is_scripted(folder))
    return exported_model<ScriptedModel>(task, folder, options);
  if (const auto base = base_of_adapter(folder))
    return PeftModel::from_pretrained(base_for_adapter(task, *base, folder, options), folder);
  return model_from_folder(task, folder, options);
}

std::shared_ptr<PreTrainedModel> copy_of_model(ModelTask task, const PreTrainedModel& model) {
  const auto& config = model.config_json();
  const auto copy = build(find_factory(task, config, "config.json"), config, "config.json");
  copy->to(model.device(), model.dtype());
  copy->load_state_dict(model.state_dict());
  copy->generation_config = model.generation_config;
  copy->train(model.is_training());
  return copy;
}

}  // namespace gradus
