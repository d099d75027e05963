#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/exported_model.h>

#include <unordered_map>
#include <unordered_set>

#include "models/exported/export_manifest.h"
#include "models/exported/exported_gradients.h"
#include "models/exported/exported_package.h"
#include "models/exported/step_files.h"
#include "models/exported/step_inputs.h"
#include "models/exported/weight_tree.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

std::string device_name(const torch::Device& device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

/// Whether the values of a sharded parameter are not in this process now. LibTorch 2.11 has no
/// texts for reads of them.
template <class Storage>
bool is_elsewhere(const Storage& storage) {
  if constexpr (requires { storage.throw_on_immutable_data_ptr(); })
    if (storage.throw_on_immutable_data_ptr()) return true;
  return storage.nbytes() > 0 && storage.data() == nullptr;
}

}  // namespace

/// What forward uses: the tensors in the order of the steps' inputs, and the loaded steps.
struct ExportedModel::Steps {
  std::vector<Tensor> parameters, buffers;
  std::unordered_map<std::string, Tensor> by_name;
  std::unordered_map<std::string, size_t> place_of_parameter;
  std::unordered_map<std::string, std::unique_ptr<ExportedPackage>> loaded;  ///< "train cuda:0"
  bool were_elsewhere = false;  ///< parameters lay in parts in several processes at some time

  /// With ZeRO stage 3 parameters come when an operation is about to read them, and go when the
  /// next one reads others. A compiled step reads all of them: one operation that takes them all is
  /// announced, and no other one is seen while the result lives.
  std::unique_ptr<at::DisableRecordFunctionGuard> gather() {
    for (const auto& parameter : parameters)
      were_elsewhere |= is_elsewhere(*parameter.storage().unsafeGetStorageImpl());
    if (!were_elsewhere) return nullptr;
    {
      RECORD_FUNCTION("gradus::exported_step", std::vector<c10::IValue>{parameters});
    }
    return std::make_unique<at::DisableRecordFunctionGuard>();
  }

  ExportedPackage& package(const fs::path& folder, const ExportManifest& manifest,
                           const ExportManifest::Package& package, const ExportManifest::Step& step,
                           torch::Device device) {
    auto& found = loaded[step.file + " " + device.str()];
    if (!found) found = std::make_unique<ExportedPackage>(folder, manifest, package, step, device);
    return *found;
  }
};

namespace {

[[noreturn]] void refuse_outputs(const fs::path& folder, size_t expected, size_t received) {
  throw Error("G-EXPORT-2", ErrorKind::model,
              fmt::format("a compiled step of {} gave {} results, exported.json names {}",
                          folder.string(), received, expected),
              "The files do not belong together. Export the model again.");
}

}  // namespace

bool ExportedModel::is_exported(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(expand_user(directory) / "exported.json", ignored);
}

std::shared_ptr<ExportedModel> ExportedModel::load(const fs::path& directory,
                                                   const PretrainedOptions& options) {
  const auto folder = expand_user(directory);
  if (!is_exported(folder))
    throw Error(
        "G-EXPORT-1", ErrorKind::model,
        fmt::format("{} holds no exported model: there is no exported.json", folder.string()),
        "Give a folder that tools/export_model.py has written.");
  auto manifest = std::make_unique<ExportManifest>(ExportManifest::read(folder));
  if (options.dtype && *options.dtype != torch::kFloat)
    throw Error("G-EXPORT-5", ErrorKind::model,
                fmt::format("the weights of an exported model stay float32, received dtype {}",
                            dtype_name(*options.dtype)),
                "Leave dtype out; to compute in bfloat16, export with\n" +
                    manifest->command_with("--precision bf16_weights"));
  auto config = read_json(folder / "config.json");
  check_config_changes(folder, config, options.config, *manifest);
  auto changes = options.config;
  if (changes.is_object() && !changes.contains("id2label")) changes.erase("num_labels");
  if (changes.is_object()) config.update(changes);
  const std::shared_ptr<ExportedModel> model(
      new ExportedModel(folder, std::move(config), std::move(manifest)));
  for (const auto& package : model->manifest_->packages)
    for (const auto* step : {&package.train, &package.forward}) {
      if (*step && package.device == device_name(options.device))
        model->steps_->package(folder, *model->manifest_, package, **step, options.device);
    }
  model->load_weights(folder, {.device = options.device, .strict = true});
  model->eval();
  return model;
}

ExportedModel::ExportedModel(fs::path directory, nlohmann::json config,
                             std::unique_ptr<ExportManifest> manifest)
    : PreTrainedModel(std::move(config), manifest->class_name, ""),
      directory_(fs::absolute(directory)),  // the working directory may change before a save
      manifest_(std::move(manifest)),
      steps_(std::make_unique<Steps>()) {
  add_tensors();
}

ExportedModel::~ExportedModel() = default;

void ExportedModel::add_tensors() {
  WeightTree tree(*this, manifest_->layer_norms);
  for (const auto& weight : manifest_->parameters) {
    steps_->place_of_parameter[weight.name] = steps_->parameters.size();
    steps_->parameters.push_back(tree.add_parameter(
        weight.name,
        torch::empty(weight.shape, torch::dtype(weight.dtype)).requires_grad_(weight.trains)));
    steps_->by_name[weight.name] = steps_->parameters.back();
  }
  for (const auto& weight : manifest_->buffers) {
    steps_->buffers.push_back(
        tree.add_buffer(weight.name, torch::empty(weight.shape, torch::dtype(weight.dtype))));
    steps_->by_name[weight.name] = steps_->buffers.back();
  }
  for (const auto& [name, first] : manifest_->tied)
    tree.add_parameter(name, steps_->by_name.at(first));
}

ModelOutput ExportedModel::forward(const Batch& inputs, const ForwardOptions& options) {
  const bool trains = is_training() && at::GradMode::is_enabled();
  const auto where = device();
  if (at::autocast::is_autocast_enabled(where.type()) && manifest_->precision == "float32")
    log_warning_once(
        "The exported model computes in float32: bf16 and fp16 have no effect on it. "
        "Export it with --precision bf16 or bf16_weights.");
  const auto* package = manifest_->package_for(device_name(where));
  const auto* step = package == nullptr ? nullptr
                     : trains           ? (package->train ? &*package->train : nullptr)
                                        : (package->forward ? &*package->forward : nullptr);
  if (step == nullptr)
    throw Error("G-EXPORT-3", ErrorKind::model,
                fmt::format("{} has no compiled {} step for {}", directory_.string(),
                            trains ? "training" : "forward", device_name(where)),
                fmt::format("Add one to the folder:\n{}",
                            manifest_->command_with(package == nullptr
                                                        ? "--device " + device_name(where)
                                                        : std::string("--steps train,forward"))));

  auto unseen = steps_->gather();
  StepInputs given(*manifest_, where);
  for (size_t i = 0; i < steps_->parameters.size(); ++i)
    given.add_weight(steps_->parameters[i].detach(), manifest_->parameters[i]);
  for (size_t i = 0; i < steps_->buffers.size(); ++i)
    given.add_weight(steps_->buffers[i], manifest_->buffers[i]);
  given.add_batch(inputs);
  if (trains) given.need_labels();
  if (manifest_->takes_items) given.add_items(options.num_items_in_batch);
  if (manifest_->dropout) given.add_seed();

  auto results =
      steps_->package(directory_, *manifest_, *package, *step, where).run(given.values());
  unseen.reset();
  const auto loss = size_t(trains ? 1 : 0), gradients = step->gradients.size(),
             buffers = step->buffers.size();
  const auto expected = loss + gradients + buffers + step->outputs.size();
  if (results.size() != expected) refuse_outputs(directory_, expected, results.size());

  ModelOutput output;
  if (trains) {
    std::vector<Tensor> for_parameters(steps_->parameters.size());
    for (size_t i = 0; i < gradients; ++i)
      for_parameters[steps_->place_of_parameter.at(step->gradients[i])] =
          std::move(results[loss + i]);
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < buffers; ++i)
        steps_->by_name.at(step->buffers[i]).copy_(results[loss + gradients + i]);
    }
    output.set("loss", loss_with_gradients(std::move(results[0]), steps_->parameters,
                                           std::move(for_parameters)));
  }
  for (size_t i = 0; i < step->outputs.size(); ++i) {
    const auto& name = step->outputs[i];
    if (name == "loss" && given.lacks_labels()) continue;
    output.set(name, results[loss + gradients + buffers + i]);
  }
  return output;
}

std::vector<std::string> ExportedModel::input_names() const { return manifest_->input_names(); }
std::vector<std::string> ExportedModel::label_names() const { return manifest_->label_names(); }
bool ExportedModel::accepts_loss_kwargs() const { return manifest_->accepts_loss_kwargs; }
bool ExportedModel::shifts_labels() const { return manifest_->shifts_labels; }
bool ExportedModel::counts_shifted_labels() const { return manifest_->counts_shifted_labels; }
std::string ExportedModel::main_input_name() const { return manifest_->main_input_name; }
const std::string& ExportedModel::exported_task() const { return manifest_->task; }
const std::string& ExportedModel::precision() const { return manifest_->precision; }

std::vector<std::string> ExportedModel::keys_to_ignore_at_inference() const {
  return manifest_->ignored_outputs;
}

std::vector<std::string> ExportedModel::devices() const {
  std::vector<std::string> names;
  for (const auto& package : manifest_->packages) names.push_back(package.device);
  return names;
}

double ExportedModel::floating_point_ops(const Batch& inputs) const {
  const auto* input = inputs.find(main_input_name());
  if (input == nullptr) return 0;
  const std::unordered_set<std::string> tables(manifest_->embeddings.begin(),
                                               manifest_->embeddings.end());
  int64_t count = 0;
  for (size_t i = 0; i < steps_->parameters.size(); ++i)
    if (tables.count(manifest_->parameters[i].name) == 0) count += steps_->parameters[i].numel();
  return 6.0 * double(input->numel()) * double(count);
}

void ExportedModel::gradient_checkpointing_enable(const GradientCheckpointing& how) {
  if (how.memory_budget > 0)
    throw Error("G-EXPORT-5", ErrorKind::model,
                fmt::format("the compiled step of this exported model recomputes {} activations; "
                            "activation_memory_budget {} cannot change it",
                            manifest_->gradient_checkpointing ? "all" : "no", how.memory_budget),
                "Leave activation_memory_budget out; gradient_checkpointing is chosen when a model "
                "is exported.");
  if (manifest_->gradient_checkpointing) return;
  throw Error("G-EXPORT-5", ErrorKind::model,
              "the compiled step of this exported model does not recompute activations",
              "Turn gradient_checkpointing off, or export the model with it:\n" +
                  manifest_->command_with("--gradient_checkpointing"));
}

bool ExportedModel::is_encoder_decoder() const {
  const auto found = config_.find("is_encoder_decoder");
  return found != config_.end() && found->is_boolean() && found->get<bool>();
}

Tensor ExportedModel::prepare_decoder_input_ids_from_labels(const Tensor& labels) const {
  const ConfigReader reader(config_, "config.json");
  const auto start = reader.optional_integer("decoder_start_token_id", 0),
             pad = reader.optional_integer("pad_token_id", 0);
  if (!start || !pad) return PreTrainedModel::prepare_decoder_input_ids_from_labels(labels);
  auto shifted = labels.roll(1, -1);
  shifted.select(-1, 0).fill_(*start);
  return shifted.masked_fill(shifted.eq(-100), *pad);
}

void ExportedModel::save_config(const fs::path& directory) const {
  PreTrainedModel::save_config(directory);
  save_steps(directory_, directory, "exported.json", *manifest_);
}

}  // namespace gradus
