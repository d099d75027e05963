#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <string_view>

namespace gradus::layers {

/// The module at a dotted path below `root`, for example "attention.self".
///
/// Modules that are missing on the way are created as plain `torch::nn::Module`s. So the names of
/// parameters can follow those of transformers without a class for every level. An empty path is
/// `root` itself. The reference stays valid as long as `root` lives. Thread-safety: none, since
/// modules may be registered.
///
///     module_at(model, "bert.encoder").register_module("layer", layers);
///
/// `register_at` does both in one call.
inline torch::nn::Module& module_at(torch::nn::Module& root, std::string_view path) {
  // One name of the path at a time, from the root down.
  auto* module = &root;
  while (!path.empty()) {
    const auto dot = path.find('.');
    const std::string name(path.substr(0, dot));
    const auto children = module->named_children();
    const auto* child = children.find(name);
    module = child != nullptr
                 ? child->get()
                 : module->register_module(name, std::make_shared<torch::nn::Module>()).get();
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return *module;
}

/// Registers `child` at a dotted path below `root`, for example "attention.self.query", and returns
/// it. Missing modules on the way are created as `module_at` does. Throws torch's error when the
/// name is taken.
///
/// The parameters of `child` then appear under that path in `root.named_parameters()`.
template <class T>
std::shared_ptr<T> register_at(torch::nn::Module& root, std::string_view path,
                               std::shared_ptr<T> child) {
  const auto dot = path.rfind('.');
  auto& parent =
      module_at(root, dot == std::string_view::npos ? std::string_view() : path.substr(0, dot));
  return parent.register_module(std::string(path.substr(dot + 1)), std::move(child));
}

}  // namespace gradus::layers
