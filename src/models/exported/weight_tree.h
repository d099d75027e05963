#pragma once

#include <torch/nn/module.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace gradus {

/// Hangs tensors into the tree of a module under the dotted names that Python gave them.
///
/// The modules between are made as they are needed. Those named in `layer_norms` get a type that
/// tells weight decay not to apply (`decay_parameter_names`).
class WeightTree {
 public:
  /// `root` must outlive this object.
  WeightTree(torch::nn::Module& root, const std::vector<std::string>& layer_norms);

  /// Adds a parameter; one that is there already under another name becomes tied.
  torch::Tensor add_parameter(const std::string& name, const torch::Tensor& tensor);
  /// Adds a buffer.
  torch::Tensor add_buffer(const std::string& name, const torch::Tensor& tensor);

 private:
  /// The module of a name, made with all modules above it where they are not there yet.
  torch::nn::Module& module_at(const std::string& path);

  std::unordered_set<std::string> layer_norms_;
  std::unordered_map<std::string, torch::nn::Module*> modules_;
};

}  // namespace gradus
