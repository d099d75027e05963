#pragma once

#include <torch/types.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus {

/// What a model's `forward` returns: an ordered map from names to tensors. The loss comes first
/// when there is one.
///
/// Tensors share their storage when an output is copied. Thread-safety: as a `std::vector`.
class ModelOutput {
 public:
  /// A name and its tensor.
  using Entry = std::pair<std::string, torch::Tensor>;

  /// An empty output.
  ModelOutput() = default;
  /// An output with these entries: `{{"loss", loss}, {"logits", logits}}`.
  ModelOutput(std::initializer_list<Entry> entries) : entries_(entries) {}

  /// Whether there is an entry `name`.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor of `name`, or null.
  const torch::Tensor* find(std::string_view name) const;
  /// The tensor of `name`. Throws `Error` G-MODEL-1 with the names that exist.
  const torch::Tensor& operator[](std::string_view name) const;
  /// The tensor at a position. Throws `Error` G-MODEL-1 when there are fewer entries.
  const torch::Tensor& operator[](size_t index) const;
  /// The entry "loss". Throws `Error` G-MODEL-1 when there is none.
  const torch::Tensor& loss() const { return (*this)["loss"]; }
  /// The entry "logits". Throws `Error` G-MODEL-1 when there is none.
  const torch::Tensor& logits() const { return (*this)["logits"]; }

  /// Replaces the tensor of `name`, or appends an entry.
  void set(std::string name, torch::Tensor value);
  /// Number of entries.
  size_t size() const { return entries_.size(); }
  /// Whether there are no entries.
  bool empty() const { return entries_.empty(); }
  /// The names in order.
  std::vector<std::string> names() const;
  /// Iterates over the entries in order.
  auto begin() const { return entries_.begin(); }
  /// The end of the entries.
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace gradus
