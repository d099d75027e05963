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
  using Entry = std::pair<std::string, torch::Tensor>;  ///< A name and its tensor.

  /// An empty batch.
  Batch() = default;
  /// A batch with these entries, in this order.
  Batch(std::initializer_list<Entry> entries);

  /// Whether there is an entry `name`.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor of an entry; null when there is none.
  const torch::Tensor* find(std::string_view name) const;
  /// Throws `Error` G-DATA-1 with the missing name and the names that are there.
  const torch::Tensor& operator[](std::string_view name) const;
  /// The same as `operator[]`.
  const torch::Tensor& at(std::string_view name) const { return (*this)[name]; }

  /// Adds or replaces; a replaced entry keeps its place.
  void set(std::string name, torch::Tensor value);
  /// Takes the entry out and returns it. Throws G-DATA-1 when it is not there.
  torch::Tensor pop(std::string_view name);
  /// Takes the entry out when it is there; an undefined tensor otherwise.
  torch::Tensor pop_or_undefined(std::string_view name);

  /// Notes that every number of `name` is set (not zero). What the host saw once is then known
  /// where the tensor lies on a device, without waiting for it. The note goes along with copies of
  /// the batch; it ends when the entry is replaced or its tensor is written to.
  void remember_all_ones(std::string_view name);
  /// Whether a note of `remember_all_ones` holds for `name`. Does not look at the numbers.
  bool known_all_ones(std::string_view name) const;

  /// The same names and notes with `copies` as tensors: entry by entry the same numbers in other
  /// memory, for example on a device.
  Batch with_copies(std::vector<torch::Tensor> copies) const;
  /// The tensors in the order of the entries.
  std::vector<torch::Tensor> tensors() const;
  /// The same batch on `device`, copies issued without waiting for them where the memory is pinned.
  Batch to(torch::Device device, bool non_blocking = true) const;
  /// The same batch in page-locked memory (needs a GPU).
  Batch pin() const;

  /// Number of entries.
  size_t size() const { return entries_.size(); }
  /// Whether there are no entries.
  bool empty() const { return entries_.empty(); }
  /// Rows: the first dimension of the first entry that has one; 0 when there is none.
  int64_t rows() const;
  /// The names of the entries, in order.
  std::vector<std::string> names() const;

  /// Iterates over the entries in order.
  auto begin() const { return entries_.begin(); }
  /// The end of the entries.
  auto end() const { return entries_.end(); }
  /// Iterates over the entries, to change them.
  auto begin() { return entries_.begin(); }
  /// The end of the entries.
  auto end() { return entries_.end(); }

 private:
  struct Note {
    std::string name;
    torch::Tensor tensor;  ///< what the note is about
    int64_t version;       ///< torch's count of writes to it
  };

  std::vector<Entry> entries_;
  std::vector<Note> all_ones_;
};

}  // namespace gradus
