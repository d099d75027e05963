#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/models/model.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

namespace gradus {

namespace {

using Visitor =
    std::function<void(const std::string& name, const torch::Tensor& tensor, bool is_parameter)>;

/// Own parameters, own buffers, then the children: the order of Python's `state_dict`.
void visit_tensors(const torch::nn::Module& module, const std::string& prefix,
                   const Visitor& visit) {
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    visit(prefix + item.key(), item.value(), true);
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    visit(prefix + item.key(), item.value(), false);
  for (const auto& child : module.named_children())
    visit_tensors(*child.value(), prefix + child.key() + ".", visit);
}

const torch::nn::Module& module_of_names(const torch::nn::Module& module) {
  const auto* model = dynamic_cast<const Model*>(&module);
  return model == nullptr ? module : model->named_module();
}

std::string shape_text(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

/// "a, b, c and 12 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  if (names.size() <= kShown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kShown, ", "),
                     names.size() - kShown);
}

}  // namespace

nlohmann::json Model::memory() const { return nullptr; }
void Model::load_memory(const nlohmann::json&) {}

void remember_full_masks(const Model& model, Batch& inputs) {
  for (const auto& name : model.droppable_masks()) {
    const auto* mask = inputs.find(name);
    if (mask == nullptr || !mask->defined() || !mask->is_cpu() || mask->dim() != 2) continue;
    if (mask->all().item<bool>()) inputs.remember_all_ones(name);
  }
}

StateDict Model::state_dict() const {
  StateDict state;
  std::unordered_set<const void*> seen;
  visit_tensors(named_module(), "",
                [&](const std::string& name, const torch::Tensor& tensor, bool) {
                  if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second)
                    state.insert(name, tensor.detach());
                });
  return state;
}

void Model::load_state_dict(const StateDict& state) {
  std::vector<std::string> missing, unexpected, mismatched;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;
  std::unordered_set<std::string> known;
  std::unordered_map<const void*, std::string>
      missing_tensors;  // a tied tensor may come under any of its names
  std::unordered_set<const void*> given;
  visit_tensors(
      named_module(), "", [&](const std::string& name, const torch::Tensor& tensor, bool) {
        if (!tensor.defined()) return;
        known.insert(name);
        const auto* value = state.find(name);
        if (value == nullptr) {
          missing_tensors.emplace(tensor.unsafeGetTensorImpl(), name);
        } else if (value->sizes() != tensor.sizes()) {
          mismatched.push_back(
              fmt::format("{} (model {}, given {})", name, shape_text(tensor), shape_text(*value)));
          given.insert(tensor.unsafeGetTensorImpl());
        } else if (given.insert(tensor.unsafeGetTensorImpl()).second) {
          copies.emplace_back(tensor, *value);
        }
      });
  for (const auto& [tensor, name] : missing_tensors)
    if (given.count(tensor) == 0) missing.push_back(name);
  std::sort(missing.begin(), missing.end());
  for (const auto& item : state)
    if (known.count(item.key()) == 0) unexpected.push_back(item.key());
  if (!missing.empty() || !unexpected.empty() || !mismatched.empty()) {
    std::vector<std::string> parts;
    if (!missing.empty()) parts.push_back("missing: " + some_of(missing));
    if (!unexpected.empty()) parts.push_back("unexpected: " + some_of(unexpected));
    if (!mismatched.empty()) parts.push_back("of another shape: " + some_of(mismatched));
    throw Error("G-MODEL-2", ErrorKind::model,
                fmt::format("cannot load the state into the model; {}", fmt::join(parts, "; ")),
                "The state must come from a model of the same structure. Nothing was changed.");
  }
  torch::NoGradGuard no_grad;
  for (auto& [tensor, value] : copies) tensor.copy_(value);
}

SavedWeights Model::saved_weights() const { return {.stem = "model", .tensors = state_dict()}; }
void Model::load_saved_weights(const StateDict& weights) { load_state_dict(weights); }

nlohmann::json Model::config() const { return nullptr; }

void Model::save_config(const std::filesystem::path& directory) const {
  const auto values = config();
  if (!values.is_null())
    write_file_atomically(directory / "config.json", dump_json(values, 2) + "\n");
}

void Model::gradient_checkpointing_enable(const GradientCheckpointing&) {
  throw Error("G-MODEL-3", ErrorKind::model,
              fmt::format("{} does not support gradient checkpointing", named_module().name()),
              "Turn gradient_checkpointing off and leave activation_memory_budget out, or override "
              "gradient_checkpointing_enable() in the model.");
}

void Model::set_embedding_noise(std::optional<double> alpha) {
  if (!alpha) return;
  throw Error("G-MODEL-4", ErrorKind::model,
              fmt::format("{} has no input embeddings to add noise to (neftune_noise_alpha={})",
                          named_module().name(), *alpha),
              "Leave neftune_noise_alpha unset, or override set_embedding_noise() in the model.");
}

std::vector<std::pair<std::string, torch::Tensor>> trainable_parameters(
    const torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::unordered_set<const void*> seen;
  visit_tensors(module_of_names(module), "",
                [&](const std::string& name, const torch::Tensor& tensor, bool is_parameter) {
                  if (!is_parameter || !tensor.defined() || !tensor.requires_grad()) return;
                  if (seen.insert(tensor.unsafeGetTensorImpl()).second)
                    parameters.emplace_back(name, tensor);
                });
  return parameters;
}

}  // namespace gradus
