#pragma once

#include <gradus/data/table_dataset.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "data/name_hash.h"

namespace gradus::sources {

/// The columns of rows that come one by one, each with the keys it happens to have.
class RowSchema {
 public:
  /// Takes in the keys and kinds of `row`.
  void add(const Example& row);
  /// Takes in those of rows that come after.
  void add(const RowSchema& later);
  /// Leaves only `wanted`, in that order (empty: all). Throws G-SRC-6.
  void choose(const std::vector<std::string>& wanted, const std::string& where);

  /// `row` with these columns in this order: missing ones null, ints as floats where the column
  /// says so. Keys that are no column are dropped, or kept at the end with `keep_others`.
  Example shape(Example row, bool keep_others = false) const;

  const std::vector<ColumnInfo>& columns() const { return columns_; }

 private:
  // `place` is where the column is if the row has the keys of the rows before.
  void add(size_t place, const std::string& name, ColumnKind kind, bool empty_list);
  void merge(size_t place, ColumnKind kind, bool empty_list);
  struct Seen {
    bool only_empty_lists = false;
  };
  std::vector<ColumnInfo> columns_;
  std::vector<Seen> seen_;
  std::unordered_map<std::string, size_t, data::NameHash> places_;  // in columns_
};

}  // namespace gradus::sources
