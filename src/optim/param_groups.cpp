#include <gradus/optim/param_groups.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <unordered_set>

namespace gradus {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// bias, layernorm, rmsnorm, (?:^|\.)norm(?:$|\.), _norm(?:$|\.)
bool is_excluded_name(const std::string& full_name) {
  const auto name = lower(full_name);
  if (has(name, "bias") || has(name, "layernorm") || has(name, "rmsnorm")) return true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const auto part = std::string_view(name).substr(begin, end - begin);
    if (part == "norm" || part.ends_with("_norm")) return true;
    begin = end + 1;
  }
  return false;
}

bool is_layer_norm(const torch::nn::Module& module) {
  if (dynamic_cast<const torch::nn::LayerNormImpl*>(&module) != nullptr) return true;
  const auto& type = module.name();
  return has(type, "LayerNorm") || has(type, "RMSNorm");
}

void collect(const torch::nn::Module& module, const std::string& prefix,
             std::vector<std::string>& names) {
  for (const auto& child : module.named_children())
    if (!is_layer_norm(*child.value())) collect(*child.value(), prefix + child.key() + ".", names);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false))
    if (!is_excluded_name(prefix + parameter.key())) names.push_back(prefix + parameter.key());
}

}  // namespace

std::vector<std::string> decay_parameter_names(const torch::nn::Module& module) {
  std::vector<std::string> names;
  collect(module, "", names);
  return names;
}

std::vector<ParamGroupInit> decay_groups(const torch::nn::Module& module, double weight_decay) {
  const auto names = decay_parameter_names(module);
  const std::unordered_set<std::string> decays(names.begin(), names.end());
  std::unordered_set<const void*> seen;
  std::vector<ParamGroupInit> groups(2);
  groups[0].weight_decay = weight_decay;
  groups[1].weight_decay = 0.0;
  for (const auto& parameter : module.named_parameters()) {
    const auto& tensor = parameter.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second ||
        !tensor.requires_grad())
      continue;
    auto& group = groups[decays.count(parameter.key()) != 0 ? 0 : 1];
    group.params.push_back(tensor);
    group.names.push_back(parameter.key());
  }
  return groups;
}

}  // namespace gradus
