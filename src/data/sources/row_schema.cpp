#include "data/sources/row_schema.h"

#include "data/sources/column_kind.h"

namespace gradus::sources {

void RowSchema::add(const std::string& name, ColumnKind kind, bool empty_list) {
  for (size_t i = 0; i < columns_.size(); ++i) {
    auto& column = columns_[i];
    if (column.name != name) continue;
    const bool is_list = kind >= ColumnKind::integers && kind <= ColumnKind::nested;
    if (empty_list && (column.kind == ColumnKind::texts || column.kind == ColumnKind::numbers ||
                       column.kind == ColumnKind::nested))
      return;
    if (seen_[i].only_empty_lists && is_list) {
      column.kind = kind;
      seen_[i].only_empty_lists = empty_list;
    } else {
      if (column.kind == ColumnKind::null) seen_[i].only_empty_lists = empty_list;
      // flat lists of a column whose other rows hold lists with nulls or lists of lists stay lists
      const auto merged = merge_kinds(column.kind, kind);
      const bool nested_list = merged == ColumnKind::mixed && is_list &&
                               column.kind >= ColumnKind::integers &&
                               column.kind <= ColumnKind::nested;
      column.kind = nested_list ? ColumnKind::nested : merged;
      if (kind != ColumnKind::null && !empty_list) seen_[i].only_empty_lists = false;
    }
    return;
  }
  columns_.push_back({.name = name, .kind = kind, .stored_as = "json"});
  seen_.push_back({.only_empty_lists = empty_list});
}

void RowSchema::add(const Example& row) {
  for (const auto& [name, value] : row)
    add(name, kind_of(value), value.is_ints() && value.ints().empty());
}

void RowSchema::add(const RowSchema& later) {
  for (size_t i = 0; i < later.columns_.size(); ++i)
    add(later.columns_[i].name, later.columns_[i].kind, later.seen_[i].only_empty_lists);
}

void RowSchema::choose(const std::vector<std::string>& wanted, const std::string& where) {
  std::vector<std::string> present;
  for (const auto& column : columns_) present.push_back(column.name);
  std::vector<ColumnInfo> chosen;
  for (const auto& name : choose_columns(present, wanted, where))
    chosen.push_back(*std::find_if(columns_.begin(), columns_.end(),
                                   [&](const auto& c) { return c.name == name; }));
  columns_ = std::move(chosen);
  seen_.resize(columns_.size());
}

Example RowSchema::shape(Example row, bool keep_others) const {
  Example shaped;
  for (const auto& column : columns_) {
    const auto* value = row.find(column.name);
    shaped.set(column.name, value != nullptr ? as_kind(*value, column.kind) : Value());
  }
  if (keep_others)
    for (const auto& [name, value] : row)
      if (!shaped.contains(name)) shaped.set(name, value);
  return shaped;
}

}  // namespace gradus::sources
