#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus::layers {

/// Modules of one type named "0", "1", …
template <class T>
class ModuleList : public torch::nn::Module {
 public:
  std::shared_ptr<T> push_back(std::shared_ptr<T> module) {
    modules_.push_back(register_module(std::to_string(modules_.size()), std::move(module)));
    return modules_.back();
  }
  size_t size() const { return modules_.size(); }
  T& operator[](size_t index) const { return *modules_[index]; }
  const std::shared_ptr<T>& last() const { return modules_.back(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  std::vector<std::shared_ptr<T>> modules_;
};

}  // namespace gradus::layers
