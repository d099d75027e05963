#include <gradus/optim/param_groups.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <unordered_map>
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

bool is_type_named(const torch::nn::Module& module, const std::string& name) {
  const auto& type = module.name();
  return type == name || type.ends_with("::" + name) || type.ends_with("::" + name + "Impl");
}

std::unordered_map<const void*, ParamRole> roles_of_parameters(const torch::nn::Module& module) {
  std::unordered_map<const void*, ParamRole> roles;
  const auto take = [&](const torch::nn::Module& part) {
    const bool is_embedding = is_type_named(part, "Embedding");
    if (!is_embedding && !is_type_named(part, "Linear")) return;
    const auto own = part.named_parameters(/*recurse=*/false);
    const auto* weight = own.find("weight");
    if (weight == nullptr || !weight->defined()) return;
    auto& role = roles[weight->unsafeGetTensorImpl()];
    if (role != ParamRole::embedding)
      role = is_embedding ? ParamRole::embedding : ParamRole::linear_weight;
  };
  take(module);
  for (const auto& part : module.modules(/*include_self=*/false)) take(*part);
  return roles;
}

// Adds each parameter that is trained to the group that `group_of` gives for its name.
template <class F>
void add_parameters(const torch::nn::Module& module, const F& group_of) {
  auto roles = roles_of_parameters(module);
  std::unordered_set<const void*> seen;
  for (const auto& parameter : module.named_parameters()) {
    const auto& tensor = parameter.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second ||
        !tensor.requires_grad())
      continue;
    ParamGroupInit& group = group_of(parameter.key());
    group.params.push_back(tensor);
    group.names.push_back(parameter.key());
    group.roles.push_back(roles[tensor.unsafeGetTensorImpl()]);
  }
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
  std::vector<ParamGroupInit> groups(2);
  groups[0].weight_decay = weight_decay;
  groups[1].weight_decay = 0.0;
  add_parameters(module, [&](const std::string& name) -> ParamGroupInit& {
    return groups[decays.contains(name) ? 0 : 1];
  });
  return groups;
}

std::vector<ParamGroupInit> all_in_one_group(const torch::nn::Module& module) {
  std::vector<ParamGroupInit> groups(1);
  add_parameters(module, [&](const std::string&) -> ParamGroupInit& { return groups[0]; });
  return groups;
}

}  // namespace gradus
