#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <string_view>

namespace gradus::layers {

/// The module under a path of names ("attention.self"); plain modules are made where there are
/// none. An empty path is `root`.
inline torch::nn::Module& module_at(torch::nn::Module& root, std::string_view path) {
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

/// Registers `child` under a path of names ("attention.self.query").
template <class T>
std::shared_ptr<T> register_at(torch::nn::Module& root, std::string_view path,
                               std::shared_ptr<T> child) {
  const auto dot = path.rfind('.');
  auto& parent =
      module_at(root, dot == std::string_view::npos ? std::string_view() : path.substr(0, dot));
  return parent.register_module(std::string(path.substr(dot + 1)), std::move(child));
}

}  // namespace gradus::layers
