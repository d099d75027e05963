#pragma once

#include <torch/types.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus {

/// An ordered map from name to tensor: what a collator makes and a model takes.
///
/// Copying is cheap (tensors share their storage). Thread-safety: as a `std::vector`.
class Batch {
 public:
  using Entry = std::pair<std::string, torch::Tensor>;

  Batch() = default;
  Batch(std::initializer_list<Entry> entries);

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Null when absent.
  const torch::Tensor* find(std::string_view name) const;
  /// Throws `Error` G-DATA-1 with the missing name and the names that are there.
  const torch::Tensor& operator[](std::string_view name) const;
  const torch::Tensor& at(std::string_view name) const { return (*this)[name]; }

  /// Adds or replaces; a replaced entry keeps its place.
  void set(std::string name, torch::Tensor value);
  /// Takes the entry out and returns it. Throws G-DATA-1 when it is not there.
  torch::Tensor pop(std::string_view name);
  /// Takes the entry out when it is there; an undefined tensor otherwise.
  torch::Tensor pop_or_undefined(std::string_view name);

  /// The same batch on `device`, copies issued without waiting for them where the memory is pinned.
  Batch to(torch::Device device, bool non_blocking = true) const;
  /// The same batch in page-locked memory (needs a GPU).
  Batch pin() const;

  /// Number of entries.
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  /// Rows: the first dimension of the first entry that has one; 0 when there is none.
  int64_t rows() const;
  std::vector<std::string> names() const;

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace gradus
