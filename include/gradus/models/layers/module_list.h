#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus::layers {

/// A list of modules of one type, named "0", "1" and so on as in torch.
///
/// Each module is registered: its parameters are parameters of the list, and `to`, `train` and
/// `eval` reach it. The modules are shared with whoever else holds their pointers. Thread-safety:
/// as a torch module.
template <class T>
class ModuleList : public torch::nn::Module {
 public:
  /// Appends and registers `module`, and returns it.
  std::shared_ptr<T> push_back(std::shared_ptr<T> module) {
    modules_.push_back(register_module(std::to_string(modules_.size()), std::move(module)));
    return modules_.back();
  }
  /// Number of modules.
  size_t size() const { return modules_.size(); }
  /// The module at `index`, which is not checked.
  T& operator[](size_t index) const { return *modules_[index]; }
  /// The last module; the list must not be empty.
  const std::shared_ptr<T>& last() const { return modules_.back(); }
  /// Iterates over the shared pointers in order.
  auto begin() const { return modules_.begin(); }
  /// The end of the list.
  auto end() const { return modules_.end(); }

 private:
  std::vector<std::shared_ptr<T>> modules_;
};

}  // namespace gradus::layers
