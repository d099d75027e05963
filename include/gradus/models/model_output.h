#pragma once

#include <torch/types.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus {

/// What a model's forward gives: an ordered map from name to tensor, the loss first when there is
/// one.
class ModelOutput {
 public:
  using Entry = std::pair<std::string, torch::Tensor>;

  ModelOutput() = default;
  ModelOutput(std::initializer_list<Entry> entries) : entries_(entries) {}

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const torch::Tensor* find(std::string_view name) const;
  /// By name or by place. Throws `Error` G-MODEL-1 with what was asked and the names there are.
  const torch::Tensor& operator[](std::string_view name) const;
  const torch::Tensor& operator[](size_t index) const;
  const torch::Tensor& loss() const { return (*this)["loss"]; }
  const torch::Tensor& logits() const { return (*this)["logits"]; }

  void set(std::string name, torch::Tensor value);
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::vector<std::string> names() const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace gradus
