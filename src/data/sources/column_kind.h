#pragma once

#include <gradus/data/table_dataset.h>

#include <nlohmann/json.hpp>

namespace gradus::sources {

ColumnKind kind_of(const Value& value);

/// The kind that holds both: null gives way, int to float, an empty list to any list; else `mixed`.
ColumnKind merge_kinds(ColumnKind a, ColumnKind b);

/// An int of a `number` column becomes a float, a list of int of a `numbers` column a list of float
/// (an empty one the column's kind).
Value as_kind(Value value, ColumnKind kind);

/// A JSON value as a cell: flat lists of one type as such a list, bools in a list as 0 and 1, all
/// else nested.
Value value_from_json(nlohmann::ordered_json value);

/// Back again; tensors become (nested) lists.
nlohmann::ordered_json json_from_value(const Value& value);

/// The columns asked for, in that order, of those there are. Throws G-SRC-6 naming `where`.
std::vector<std::string> choose_columns(const std::vector<std::string>& present,
                                        const std::vector<std::string>& wanted,
                                        const std::string& where);

}  // namespace gradus::sources
