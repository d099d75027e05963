#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/model_folder.h>
#include <gradus/models/peft_model.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <unordered_set>

#include "core/mapped_reads.h"
#include "models/adapters/lora_layer.h"
#include "models/adapters/lora_targets.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr const char* kFilePrefix = "base_model.model.";

/// Lets the parameters of any module be replaced.
struct OpenModule : torch::nn::Module {
  using torch::nn::Module::parameters_;
};

/// Puts `tensor` in the place of a parameter of a linear layer, a table of embeddings or a norm.
void put_parameter(torch::nn::Module& module, const std::string& name, const Tensor& tensor) {
  if (auto* linear = module.as<layers::Linear>()) {
    name == "bias" ? linear->tie_bias(tensor) : linear->tie(tensor);
  } else if (auto* table = module.as<layers::Embedding>()) {
    table->tie(tensor);
  } else {
    if (auto* rms_norm = module.as<layers::RMSNorm>()) rms_norm->weight = tensor;
    if (auto* norm = module.as<torch::nn::LayerNormImpl>())
      (name == "bias" ? norm->bias : norm->weight) = tensor;
    (module.*&OpenModule::parameters_)[name] = tensor;
  }
}

std::string with_thousands(int64_t value) {
  const auto digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// Whether the base model's folder says another number of tokens than the model has now.
bool has_other_vocabulary(const LoraConfig& config, const nlohmann::json& model) {
  if (!config.base_model_name_or_path || !model.contains("vocab_size")) return false;
  const auto file = expand_user(*config.base_model_name_or_path) / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;
  const auto before = read_json(file);
  return before.contains("vocab_size") && before["vocab_size"] != model["vocab_size"];
}

/// With bias=all peft's files have the biases of a module that is trained as a whole again, under
/// its own names, which it ignores when it reads them.
bool is_written_beside(const std::string& key) {
  return key.find(".modules_to_save.") != std::string::npos ||
         key.find(".original_module.") != std::string::npos;
}

/// The config of an adapter that is there already.
LoraConfig config_of_folder(const std::filesystem::path& directory) {
  auto config = LoraConfig::from_pretrained(directory);
  auto& init = config.init_lora_weights;
  if (init == "eva" || init == "orthogonal") init = "true";  // the values come from the file
  if (init != "true" && init != "false" && init != "gaussian" && init != "pissa")
    throw Error("G-PEFT-1", ErrorKind::model,
                fmt::format("{}: init_lora_weights is {}, which changed the weights of the base "
                            "model in a way that gradus does not have",
                            (directory / "adapter_config.json").string(), init),
                "Merge the adapter into its model with peft and load the merged model.");
  return config;
}

bool trains_bias(const LoraConfig& config, bool adapted) {
  return config.bias == "all" || (config.bias == "lora_only" && adapted);
}

}  // namespace

PeftModel::PeftModel(std::shared_ptr<PreTrainedModel> base, LoraConfig config,
                     const std::string& adapter_name)
    : PreTrainedModel(base->config_json(), base->class_name(), ""), base_(std::move(base)) {
  generation_config = base_->generation_config;
  const bool trainable = !config.inference_mode;
  inject(adapter_name, std::move(config));
  register_module("base_model", base_);
  train(base_->is_training());
  activate(adapter_name, trainable);
}

PeftModel::~PeftModel() = default;

std::shared_ptr<PeftModel> get_peft_model(std::shared_ptr<PreTrainedModel> base, LoraConfig config,
                                          const std::string& adapter_name) {
  return std::make_shared<PeftModel>(std::move(base), std::move(config), adapter_name);
}

std::shared_ptr<PeftModel> PeftModel::from_pretrained(std::shared_ptr<PreTrainedModel> base,
                                                      const std::filesystem::path& directory,
                                                      const std::string& adapter_name,
                                                      bool is_trainable) {
  auto config = config_of_folder(directory);
  config.inference_mode = !is_trainable;
  auto model = get_peft_model(std::move(base), std::move(config), adapter_name);
  model->read_adapter(directory, adapter_name);
  if (!is_trainable) model->eval();
  return model;
}

void PeftModel::add_adapter(const std::string& adapter_name, LoraConfig config) {
  if (adapters_.count(adapter_name) != 0)
    throw Error("G-PEFT-4", ErrorKind::usage,
                fmt::format("the model has an adapter \"{}\" already", adapter_name),
                "Choose another name.");
  inject(adapter_name, std::move(config));
  activate(active_, !adapter(active_).config.inference_mode);
}

void PeftModel::load_adapter(const std::filesystem::path& directory,
                             const std::string& adapter_name, bool is_trainable) {
  auto config = config_of_folder(directory);
  config.inference_mode = !is_trainable;
  add_adapter(adapter_name, std::move(config));
  read_adapter(directory, adapter_name);
}

void PeftModel::copy_adapter(const std::string& from, const std::string& to) {
  auto config = peft_config(from);
  config.init_lora_weights = "true";  // others may take from the base model's weights once more
  add_adapter(to, std::move(config));
  adapter(to).config.init_lora_weights = peft_config(from).init_lora_weights;
  const torch::NoGradGuard no_grad;
  const auto values = tensors_of(from);
  for (const auto& item : tensors_of(to)) Tensor(item.value()).copy_(values[item.key()]);
}

void PeftModel::set_adapter(const std::string& adapter_name) {
  adapter(adapter_name);
  unmerge_adapter();
  activate(adapter_name, true);
}

const PeftModel::Adapter& PeftModel::adapter(const std::string& name) const {
  const auto found = adapters_.find(name);
  if (found != adapters_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& each : adapters_) names.push_back(each.first);
  throw Error("G-PEFT-4", ErrorKind::usage, fmt::format("the model has no adapter \"{}\"", name),
              fmt::format("It has {}.", join_or(names)));
}

PeftModel::Adapter& PeftModel::adapter(const std::string& name) {
  return const_cast<Adapter&>(std::as_const(*this).adapter(name));
}

const LoraConfig& PeftModel::peft_config(const std::string& adapter_name) const {
  return adapter(adapter_name).config;
}

void PeftModel::inject(const std::string& name, LoraConfig config) {
  config.check();
  if (config.bias != "none" && !adapters_.empty())
    throw Error("G-PEFT-1", ErrorKind::model,
                fmt::format("LoraConfig: the adapter \"{}\" has bias={}, but is not the only one",
                            name, config.bias),
                "Several adapters cannot train the same biases. Leave bias at none.");
  complete_targets(config, *base_);
  const auto targets = adapted_modules(config, *base_);
  const auto saved = modules_to_save(config, *base_);
  // A copy is one of the base model's own weights, not of another adapter's.
  if (!active_.empty()) use_copies(adapter(active_), false);
  Adapter made;
  for (const auto& [path, module] : targets) {
    const auto layer = LoraLayer::of(*module);
    if (!layer->is_table()) config.fan_in_fan_out = layer->is_transposed();
    layer->add(name, config, pattern_value(config.rank_pattern, path, config.r),
               pattern_value(config.alpha_pattern, path, config.lora_alpha));
    layers_[path] = layer;
    made.layers.push_back(path);
  }
  for (const auto& [path, module] : saved)
    for (const auto& item : module->named_parameters())
      made.copies.push_back({path + "." + item.key(), item.value(), item.value().detach().clone()});
  made.config = std::move(config);
  adapters_[name] = std::move(made);
}

void PeftModel::activate(const std::string& name, bool trainable) {
  if (!active_.empty() && active_ != name) use_copies(adapter(active_), false);
  active_ = name;
  auto& now = adapter(name);
  now.config.inference_mode = !trainable;
  for (auto& parameter : base_->parameters()) parameter.requires_grad_(false);
  use_copies(now, true);
  for (auto& [path, layer] : layers_) {
    layer->active = name;
    const auto part = layer->parts.find(name);
    if (part == layer->parts.end()) continue;
    part->second.a->weight.requires_grad_(trainable);
    for (auto& tensor : part->second.b->parameters()) tensor.requires_grad_(trainable);
    if (part->second.magnitude.defined()) part->second.magnitude.requires_grad_(trainable);
  }
  for (auto& copy : now.copies) copy.copy.requires_grad_(trainable);
  if (!trainable || now.config.bias == "none") return;
  for (const auto& item : named_module().named_parameters()) {
    if (!item.key().ends_with(".bias") || item.key().find(".lora_") != std::string::npos) continue;
    const auto owner = item.key().substr(0, item.key().size() - 5);
    if (trains_bias(now.config, layers_.count(owner) != 0)) item.value().requires_grad_(true);
  }
}

double PeftModel::floating_point_ops(const Batch& inputs) const {
  // peft keeps the modules that are trained as a whole twice, and both count.
  const auto modules = base_->named_module().named_modules();
  int64_t count = 0;
  for (const auto& [name, adapter] : adapters_)
    for (const auto& copy : adapter.copies) {
      const auto& module = **modules.find(copy.name.substr(0, copy.name.rfind('.')));
      if (dynamic_cast<const layers::Embedding*>(&module) == nullptr) count += copy.copy.numel();
    }
  const auto* input = inputs.find(main_input_name());
  return base_->floating_point_ops(inputs) +
         (input == nullptr ? 0.0 : 6.0 * double(input->numel()) * double(count));
}

void PeftModel::use_copies(const Adapter& adapter, bool trained) {
  if (adapter.copies.empty()) return;
  const auto modules = named_module().named_modules();
  for (const auto& copy : adapter.copies) {
    const auto dot = copy.name.rfind('.');
    put_parameter(**modules.find(copy.name.substr(0, dot)), copy.name.substr(dot + 1),
                  trained ? copy.copy : copy.before.to(copy.copy.device()));
  }
}

void PeftModel::enable(bool on) {
  if (!on) unmerge_adapter();
  for (auto& [path, layer] : layers_) layer->enabled = on;
  use_copies(adapter(active_), on);
}

void PeftModel::set_scale(double scale, const std::string& adapter_name) {
  adapter(adapter_name);
  unmerge_adapter();
  for (auto& [path, layer] : layers_) layer->set_scale(adapter_name, scale);
}

void PeftModel::merge_adapter() {
  for (const auto& [path, layer] : layers_) {
    const auto part = layer->parts.find(active_);
    if (part != layer->parts.end() && part->second.b->bias.defined() && !layer->bias().defined())
      throw Error(
          "G-PEFT-5", ErrorKind::model,
          fmt::format("the adapter cannot be merged: it has a bias for {}, which has none", path),
          "Keep the adapter apart from the model, or train one without lora_bias.");
  }
  // In the model's order, as peft: two tables may share one weight.
  for (const auto& path : adapter(active_).layers)
    if (const auto layer = layers_.find(path); layer != layers_.end())
      layer->second->merge(active_);
}

void PeftModel::unmerge_adapter() {
  for (const auto& path : adapter(active_).layers)
    if (const auto layer = layers_.find(path); layer != layers_.end()) layer->second->unmerge();
}

std::shared_ptr<PreTrainedModel> PeftModel::merge_and_unload() {
  merge_adapter();
  remove_layers();
  return base_;
}

std::shared_ptr<PreTrainedModel> PeftModel::unload() {
  unmerge_adapter();
  use_copies(adapter(active_), false);
  remove_layers();
  return base_;
}

void PeftModel::remove_layers() {
  for (auto& [path, layer] : layers_) layer->remove();
  layers_.clear();
}

ParameterCount PeftModel::count_parameters() const {
  ParameterCount count;
  std::unordered_set<const void*> seen;
  const auto add = [&](const Tensor& tensor) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    count.all += tensor.numel();
    if (tensor.requires_grad()) count.trainable += tensor.numel();
  };
  for (const auto& tensor : base_->parameters()) add(tensor);
  for (const auto& [name, each] : adapters_)
    for (const auto& copy : each.copies) {
      add(copy.before);
      add(copy.copy);
    }
  return count;
}

std::string PeftModel::trainable_parameters_text() const {
  const auto count = count_parameters();
  return fmt::format("trainable params: {} || all params: {} || trainable%: {:.4f}",
                     with_thousands(count.trainable), with_thousands(count.all),
                     100.0 * double(count.trainable) / double(count.all));
}

ModelOutput PeftModel::forward(const Batch& inputs, const ForwardOptions& options) {
  return base_->forward(inputs, options);
}

bool PeftModel::takes_bf16_weights() const {
  // DoRA's norms want float32, and modules that are trained as a whole have a second set of weights
  // that nobody would round.
  const bool is_plain = std::ranges::all_of(adapters_, [](const auto& each) {
    return !each.second.config.use_dora && each.second.copies.empty();
  });
  return is_plain && base_->takes_bf16_weights();
}

void PeftModel::align_special_tokens(const TokenizerLike& tokenizer) {
  base_->align_special_tokens(tokenizer);
  config_ = base_->config_json();
  generation_config = base_->generation_config;
}

StateDict PeftModel::tensors_of(const std::string& name) const {
  const auto& chosen = adapter(name);
  StateDict state;
  std::unordered_set<std::string> adapted(chosen.layers.begin(), chosen.layers.end());
  for (const auto& path : chosen.layers) {
    const auto& part = layers_.at(path)->parts.at(name);
    const auto prefix = kFilePrefix + path;
    const bool is_table = layers_.at(path)->is_table();
    state.insert(prefix + (is_table ? ".lora_embedding_A" : ".lora_A.weight"),
                 part.a->weight.detach());
    state.insert(prefix + (is_table ? ".lora_embedding_B" : ".lora_B.weight"),
                 part.b->weight.detach());
    if (part.b->bias.defined()) state.insert(prefix + ".lora_B.bias", part.b->bias.detach());
    if (part.magnitude.defined())
      state.insert(prefix + ".lora_magnitude_vector", part.magnitude.detach());
  }
  if (chosen.config.bias != "none")
    for (const auto& item : base_->named_module().named_parameters()) {
      const auto& key = item.key();
      if (!key.ends_with(".bias") || key.find(".lora_") != std::string::npos) continue;
      const auto owner = key.substr(0, key.size() - 5);
      const bool is_adapted = adapted.count(owner) != 0;
      if (trains_bias(chosen.config, is_adapted))
        state.insert(kFilePrefix + owner + (is_adapted ? ".base_layer.bias" : ".bias"),
                     item.value().detach());
    }
  for (const auto& copy : chosen.copies)
    if (!state.contains(kFilePrefix + copy.name))
      state.insert(kFilePrefix + copy.name, copy.copy.detach());
  return state;
}

StateDict PeftModel::vocabulary_tensors() const {
  StateDict tensors;
  const auto* input = base_->input_embedding_module();
  for (const auto& item : base_->named_module().named_modules()) {
    const auto& path = item.key();
    if (item.value().get() != input && path != "lm_head") continue;
    const auto parameters = item.value()->named_parameters(/*recurse=*/false);
    const auto* weight = parameters.find("weight");
    if (weight == nullptr) continue;
    const auto* place = layers_.contains(path) ? ".base_layer.weight" : ".weight";
    tensors.insert(kFilePrefix + path + place, weight->detach());
  }
  return tensors;
}

SavedWeights PeftModel::saved_weights() const {
  auto tensors = tensors_of(active_);
  const bool is_resized = has_other_vocabulary(adapter(active_).config, base_->config_json());
  const bool is_targeted = targets_vocabulary(adapter(active_).config, *base_);
  if (is_targeted || is_resized)
    for (const auto& item : vocabulary_tensors())
      if ((!is_targeted || item.key().ends_with(".base_layer.weight")) &&
          !tensors.contains(item.key()))
        tensors.insert(item.key(), item.value());
  return {.stem = "adapter_model", .tensors = std::move(tensors)};
}

void PeftModel::load_saved_weights(const StateDict& weights) {
  auto places = tensors_of(active_);
  for (const auto& item : vocabulary_tensors())
    if (weights.contains(item.key()) && !places.contains(item.key()))
      places.insert(item.key(), item.value());
  std::vector<std::string> other;
  for (const auto& item : places) {
    const auto* value = weights.find(item.key());
    if (value == nullptr || value->sizes() != item.value().sizes()) other.push_back(item.key());
  }
  if (!other.empty())
    throw Error("G-PEFT-3", ErrorKind::model,
                fmt::format("the adapter does not fit {}: {} tensors are missing or have another "
                            "shape, the first is {}",
                            base_->class_name(), other.size(), other.front()),
                "Use the model that the adapter was trained on. Nothing was changed.");
  const torch::NoGradGuard no_grad;
  for (const auto& item : places) Tensor(item.value()).copy_(weights[item.key()]);
}

void PeftModel::read_adapter(const std::filesystem::path& directory, const std::string& name) {
  const auto places = tensors_of(name), vocabulary = vocabulary_tensors();
  StateDict found;
  std::vector<std::string> unexpected;
  for (const auto& [key, tensor] : read_adapter_folder(directory))
    if (places.contains(key) || vocabulary.contains(key))
      found.insert(key, tensor);
    else if (!is_written_beside(key))
      unexpected.push_back(key);
  if (!unexpected.empty())
    throw Error(
        "G-PEFT-3", ErrorKind::model,
        fmt::format("the adapter in {} does not fit {}: the model has no place for {} "
                    "tensors, the first is {}",
                    directory.string(), base_->class_name(), unexpected.size(), unexpected.front()),
        "Use the model that the adapter was trained on.");
  const auto before = std::exchange(active_, name);
  try {
    read_mapped([&] { load_saved_weights(found); });
  } catch (...) {
    active_ = before;
    throw;
  }
  active_ = before;
}

void PeftModel::save_config(const std::filesystem::path& directory) const {
  auto config = adapter(active_).config;
  config.inference_mode = true;  // as peft writes it
  auto values = config.to_json();
  const auto type = config_.value("model_type", std::string());
  if (!config.task_type && !type.empty())
    values["auto_mapping"] = {
        {"base_model_class", class_name()},
        {"parent_library", fmt::format("transformers.models.{0}.modeling_{0}", type)}};
  write_file_atomically(directory / "adapter_config.json", dump_json(values, 2));
}

void PeftModel::save_pretrained(const std::filesystem::path& directory,
                                const std::string& max_shard_size) const {
  ModelFolder(*this, {.max_shard_size = max_shard_size}).save(directory);
}

std::optional<std::filesystem::path> base_of_adapter(const std::filesystem::path& directory) {
  const auto file = directory / "adapter_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const auto base = LoraConfig::from_pretrained(directory).base_model_name_or_path;
  if (!base || base->empty())
    throw Error("G-PEFT-1", ErrorKind::model,
                fmt::format("{} names no model: base_model_name_or_path is not set", file.string()),
                "Write the folder of the base model there.");
  return expand_user(*base);
}

}  // namespace gradus
