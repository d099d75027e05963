#include "models/exported/weight_tree.h"

namespace gradus {
namespace {

/// Modules that carry weights. The second kind tells weight decay where not to apply.
struct ExportedPart : torch::nn::Module {};
struct ExportedLayerNorm : torch::nn::Module {};

/// "a.b.weight": "a.b" and "weight".
std::pair<std::string, std::string> split_last(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

WeightTree::WeightTree(torch::nn::Module& root, const std::vector<std::string>& layer_norms)
    : layer_norms_(layer_norms.begin(), layer_norms.end()), modules_{{"", &root}} {}

torch::nn::Module& WeightTree::module_at(const std::string& path) {
  if (const auto found = modules_.find(path); found != modules_.end()) return *found->second;
  const auto [above, last] = split_last(path);
  std::shared_ptr<torch::nn::Module> made;
  if (layer_norms_.count(path) != 0)
    made = std::make_shared<ExportedLayerNorm>();
  else
    made = std::make_shared<ExportedPart>();
  module_at(above).register_module(last, made);
  modules_[path] = made.get();
  return *made;
}

torch::Tensor WeightTree::add_parameter(const std::string& name, const torch::Tensor& tensor) {
  const auto [path, last] = split_last(name);
  return module_at(path).register_parameter(last, tensor, tensor.requires_grad());
}

torch::Tensor WeightTree::add_buffer(const std::string& name, const torch::Tensor& tensor) {
  const auto [path, last] = split_last(name);
  return module_at(path).register_buffer(last, tensor);
}

}  // namespace gradus
