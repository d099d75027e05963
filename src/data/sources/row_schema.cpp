#include "data/sources/row_schema.h"

#include "data/sources/column_kind.h"

namespace gradus::sources {

void RowSchema::add(size_t place, const std::string& name, ColumnKind kind, bool empty_list) {
  if (place >= columns_.size() || columns_[place].name != name) {
    const auto [found, is_new] = places_.try_emplace(name, columns_.size());
    if (is_new) {
      columns_.push_back({.name = name, .kind = kind, .stored_as = "json"});
      seen_.push_back({.only_empty_lists = empty_list});
      return;
    }
    place = found->second;
  }
  merge(place, kind, empty_list);
}

void RowSchema::merge(size_t place, ColumnKind kind, bool empty_list) {
  auto& column = columns_[place];
  auto& seen = seen_[place];
  const bool is_list = kind >= ColumnKind::integers && kind <= ColumnKind::nested;
  if (empty_list && (column.kind == ColumnKind::texts || column.kind == ColumnKind::numbers ||
                     column.kind == ColumnKind::nested))
    return;
  if (seen.only_empty_lists && is_list) {
    column.kind = kind;
    seen.only_empty_lists = empty_list;
    return;
  }
  if (column.kind == ColumnKind::null) seen.only_empty_lists = empty_list;
  // flat lists of a column whose other rows hold lists with nulls or lists of lists stay lists
  const auto merged = merge_kinds(column.kind, kind);
  const bool nested_list = merged == ColumnKind::mixed && is_list &&
                           column.kind >= ColumnKind::integers && column.kind <= ColumnKind::nested;
  column.kind = nested_list ? ColumnKind::nested : merged;
  if (kind != ColumnKind::null && !empty_list) seen.only_empty_lists = false;
}

void RowSchema::add(const Example& row) {
  size_t place = 0;
  for (const auto& [name, value] : row)
    add(place++, name, kind_of(value), value.is_ints() && value.ints().empty());
}

void RowSchema::add(const RowSchema& later) {
  for (size_t i = 0; i < later.columns_.size(); ++i)
    add(i, later.columns_[i].name, later.columns_[i].kind, later.seen_[i].only_empty_lists);
}

void RowSchema::choose(const std::vector<std::string>& wanted, const std::string& where) {
  if (wanted.empty()) return;
  std::vector<std::string> present;
  for (const auto& column : columns_) present.push_back(column.name);
  RowSchema chosen;
  for (const auto& name : choose_columns(present, wanted, where)) {
    const auto place = places_.at(name);
    chosen.places_.try_emplace(name, chosen.columns_.size());
    chosen.columns_.push_back(columns_[place]);
    chosen.seen_.push_back(seen_[place]);
  }
  *this = std::move(chosen);
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
