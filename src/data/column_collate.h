#pragma once

#include <gradus/data/example.h>

#include <span>
#include <vector>

namespace gradus::data {

/// Column `name` of all rows stacked, by the rules of `default_data_collator`. `place` is where it
/// probably stands.
torch::Tensor collate_column(const std::vector<Example>& rows, std::string_view name,
                             size_t place = 0);

/// Lists of integers out of rows: their own memory, or that of a tensor, without copying where
/// possible.
class IntLists {
 public:
  /// Throws G-DATA-6 when a row holds something else, G-DATA-1 when it lacks the column.
  IntLists(const std::vector<Example>& rows, std::string_view name);
  /// Of any values; `name` is for messages.
  IntLists(std::span<const Value* const> values, std::string_view name);

  std::span<const std::span<const int64_t>> lists() const { return lists_; }
  std::span<const int64_t> operator[](size_t row) const { return lists_[row]; }
  size_t size() const { return lists_.size(); }

 private:
  void add(const Value& value, std::string_view name, size_t row);

  std::vector<std::span<const int64_t>> lists_;
  std::vector<torch::Tensor> kept_;
};

}  // namespace gradus::data
