#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/models/scripted_model.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <unordered_map>

#include "models/exported/export_manifest.h"
#include "models/exported/step_files.h"
#include "models/exported/step_inputs.h"
#include "models/exported/weight_tree.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

constexpr const char* kScriptedFile = "scripted.json";
constexpr std::string_view kTracedPrefix = "model.";  // of the wrapper that was traced

/// Puts the model's tensors in the place of those that the script was saved with.
void use_weights(torch::jit::Module script, const std::unordered_map<std::string, Tensor>& weights,
                 const fs::path& file) {
  const auto use = [&](const std::string& name) {
    const auto found =
        weights.find(name.substr(name.starts_with(kTracedPrefix) ? kTracedPrefix.size() : 0));
    if (found == weights.end()) return;  // a constant of the script
    auto module = script;
    size_t begin = 0;
    for (size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1)
      module = module.attr(name.substr(begin, dot - begin)).toModule();
    const auto last = name.substr(begin);
    if (module.attr(last).toTensor().sizes() != found->second.sizes())
      throw Error(
          "G-EXPORT-2", ErrorKind::model,
          fmt::format("{}: {} has another shape than scripted.json says", file.string(), name),
          "The files do not belong together. Export the model again.");
    module.setattr(last, found->second);
  };
  std::vector<std::string> names;
  for (const auto& item : script.named_parameters()) names.push_back(item.name);
  for (const auto& item : script.named_buffers()) names.push_back(item.name);
  for (const auto& name : names) use(name);
}

}  // namespace

struct ScriptedModel::Scripts {
  torch::jit::Module train, forward;
  std::unordered_map<std::string, Tensor> by_name;
};

bool ScriptedModel::is_scripted(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(expand_user(directory) / kScriptedFile, ignored);
}

std::shared_ptr<ScriptedModel> ScriptedModel::load(const fs::path& directory,
                                                   const PretrainedOptions& options) {
  const auto folder = expand_user(directory);
  if (!is_scripted(folder))
    throw Error("G-EXPORT-1", ErrorKind::model,
                fmt::format("{} holds no model as TorchScript: there is no {}", folder.string(),
                            kScriptedFile),
                "Give a folder that tools/export_model.py --torchscript has written.");
  auto manifest = std::make_unique<ExportManifest>(ExportManifest::read(folder, kScriptedFile));
  auto config = read_json(folder / "config.json");
  check_config_changes(folder, config, options.config, *manifest);
  if (options.config.is_object()) config.update(options.config);
  const std::shared_ptr<ScriptedModel> model(
      new ScriptedModel(folder, std::move(config), std::move(manifest)));
  model->load_weights(folder, {.device = options.device, .strict = true});
  model->eval();
  return model;
}

ScriptedModel::ScriptedModel(fs::path directory, nlohmann::json config,
                             std::unique_ptr<ExportManifest> manifest)
    : PreTrainedModel(std::move(config), manifest->class_name, ""),
      directory_(fs::absolute(directory)),  // the working directory may change before a save
      manifest_(std::move(manifest)),
      scripts_(std::make_unique<Scripts>()) {
  auto& weights = scripts_->by_name;
  WeightTree tree(*this, manifest_->layer_norms);
  for (const auto& weight : manifest_->parameters)
    weights[weight.name] = tree.add_parameter(
        weight.name,
        torch::empty(weight.shape, torch::dtype(weight.dtype)).requires_grad_(weight.trains));
  for (const auto& weight : manifest_->buffers)
    weights[weight.name] =
        tree.add_buffer(weight.name, torch::empty(weight.shape, torch::dtype(weight.dtype)));
  for (const auto& [name, first] : manifest_->tied)
    weights[name] = tree.add_parameter(name, weights.at(first));

  if (manifest_->packages.empty() || !manifest_->packages[0].train ||
      !manifest_->packages[0].forward)
    throw Error("G-EXPORT-1", ErrorKind::model,
                fmt::format("{} names no scripts", (directory_ / kScriptedFile).string()),
                "Export the model again.");
  const auto read = [&](const ExportManifest::Step& step) {
    const auto file = directory_ / step.file;
    check_step_file(file, step, *manifest_);
    try {
      auto script = torch::jit::load(file.string(), torch::Device(torch::kCPU));
      use_weights(script, weights, file);
      return script;
    } catch (const c10::Error& error) {
      refuse_step_file(file, error.what_without_backtrace(), *manifest_);
    }
  };
  scripts_->train = read(*manifest_->packages[0].train);
  scripts_->forward = read(*manifest_->packages[0].forward);
}

ScriptedModel::~ScriptedModel() = default;

ModelOutput ScriptedModel::forward(const Batch& inputs, const ForwardOptions& options) {
  StepInputs given(*manifest_, device());
  given.add_batch(inputs);
  if (manifest_->takes_items) given.add_items(options.num_items_in_batch);
  auto& script = is_training() ? scripts_->train : scripts_->forward;
  const auto& package = manifest_->packages[0];
  const auto& names = is_training() ? package.train->outputs : package.forward->outputs;
  const auto results =
      script.forward({given.values().begin(), given.values().end()}).toTupleRef().elements().vec();
  if (results.size() != names.size())
    throw Error("G-EXPORT-2", ErrorKind::model,
                fmt::format("a script of {} gave {} results, {} names {}", directory_.string(),
                            results.size(), kScriptedFile, names.size()),
                "The files do not belong together. Export the model again.");
  ModelOutput output;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != "loss" || !given.lacks_labels()) output.set(names[i], results[i].toTensor());
  return output;
}

std::vector<std::string> ScriptedModel::input_names() const { return manifest_->input_names(); }
std::vector<std::string> ScriptedModel::label_names() const { return manifest_->label_names(); }
bool ScriptedModel::accepts_loss_kwargs() const { return manifest_->accepts_loss_kwargs; }
bool ScriptedModel::shifts_labels() const { return manifest_->shifts_labels; }
bool ScriptedModel::counts_shifted_labels() const { return manifest_->counts_shifted_labels; }
std::string ScriptedModel::main_input_name() const { return manifest_->main_input_name; }
const std::string& ScriptedModel::exported_task() const { return manifest_->task; }

std::vector<std::string> ScriptedModel::keys_to_ignore_at_inference() const {
  return manifest_->ignored_outputs;
}

bool ScriptedModel::is_encoder_decoder() const {
  const auto found = config_.find("is_encoder_decoder");
  return found != config_.end() && found->is_boolean() && found->get<bool>();
}

void ScriptedModel::save_config(const fs::path& directory) const {
  PreTrainedModel::save_config(directory);
  save_steps(directory_, directory, kScriptedFile, *manifest_);
}

}  // namespace gradus
