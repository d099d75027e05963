#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/data/table_dataset.h>

#include <limits>

#include "data/sources/column_kind.h"

namespace gradus {

std::string kind_name(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::null: return "null";
    case ColumnKind::boolean: return "bool";
    case ColumnKind::integer: return "int";
    case ColumnKind::number: return "float";
    case ColumnKind::text: return "text";
    case ColumnKind::integers: return "list of int";
    case ColumnKind::numbers: return "list of float";
    case ColumnKind::texts: return "list of text";
    case ColumnKind::tensor: return "tensor";
    case ColumnKind::nested: return "nested";
    case ColumnKind::mixed: return "of several types";
  }
  return "unknown";
}

std::vector<std::string> TableDataset::column_names() const {
  std::vector<std::string> names;
  for (const auto& column : columns()) names.push_back(column.name);
  return names;
}

namespace {

std::vector<ColumnInfo> columns_of(const Dataset& dataset) {
  if (const auto* table = dynamic_cast<const TableDataset*>(&dataset)) return table->columns();
  std::vector<ColumnInfo> columns;
  if (dataset.size() == 0) return columns;
  const auto first = dataset.get(0);
  for (const auto& [name, value] : first)
    columns.push_back({.name = name, .kind = sources::kind_of(value)});
  return columns;
}

}  // namespace

void require_columns(const Dataset& dataset, std::span<const ColumnNeed> needs,
                     const std::string& where) {
  const auto columns = columns_of(dataset);
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  for (const auto& need : needs) {
    sources::choose_columns(names, {need.name}, where);
    const auto& column = *std::find_if(columns.begin(), columns.end(),
                                       [&](const auto& c) { return c.name == need.name; });
    if (need.kinds.empty() ||
        std::find(need.kinds.begin(), need.kinds.end(), column.kind) != need.kinds.end())
      continue;
    std::vector<std::string> expected;
    for (const auto kind : need.kinds) expected.push_back(kind_name(kind));
    throw Error("G-SRC-7", ErrorKind::data,
                fmt::format("column \"{}\" of {} is {}; expected {}", need.name, where,
                            kind_name(column.kind), join_or(expected)),
                column.kind == ColumnKind::mixed ? "Give the column one type in all rows."
                                                 : "Name another column, or convert this one.");
  }
}

namespace sources {

std::vector<std::string> choose_columns(const std::vector<std::string>& present,
                                        const std::vector<std::string>& wanted,
                                        const std::string& where) {
  if (wanted.empty()) return present;
  for (const auto& name : wanted) {
    if (std::find(present.begin(), present.end(), name) != present.end()) continue;
    std::string there;
    for (const auto& column : present) there += (there.empty() ? "" : ", ") + column;
    const auto nearest = did_you_mean(name, present);
    throw Error("G-SRC-6", ErrorKind::data,
                fmt::format("{} has no column \"{}\"; its columns are {}", where, name,
                            there.empty() ? "none" : there),
                nearest.empty() ? "Name one of these columns, or give a file that has this column."
                                : nearest);
  }
  return wanted;
}

ColumnKind kind_of(const Value& value) {
  if (value.is_null()) return ColumnKind::null;
  if (value.is_bool()) return ColumnKind::boolean;
  if (value.is_int()) return ColumnKind::integer;
  if (value.is_double()) return ColumnKind::number;
  if (value.is_string()) return ColumnKind::text;
  if (value.is_ints()) return ColumnKind::integers;
  if (value.is_floats()) return ColumnKind::numbers;
  if (value.is_strings()) return ColumnKind::texts;
  if (value.is_tensor()) return ColumnKind::tensor;
  return ColumnKind::nested;
}

ColumnKind merge_kinds(ColumnKind a, ColumnKind b) {
  if (a == b || b == ColumnKind::null) return a;
  if (a == ColumnKind::null) return b;
  const auto both = [&](ColumnKind x, ColumnKind y) {
    return (a == x && b == y) || (a == y && b == x);
  };
  if (both(ColumnKind::integer, ColumnKind::number)) return ColumnKind::number;
  if (both(ColumnKind::integers, ColumnKind::numbers)) return ColumnKind::numbers;
  return ColumnKind::mixed;
}

Value as_kind(Value value, ColumnKind kind) {
  if (kind == ColumnKind::number && value.is_int()) return double(value.integer());
  if (!value.is_ints()) return value;
  const auto& ints = value.ints();
  if (kind == ColumnKind::numbers) return Value::Floats(ints.begin(), ints.end());
  if (ints.empty() && kind == ColumnKind::texts) return Value::Strings();
  if (ints.empty() && kind == ColumnKind::nested)
    return Value::nested(nlohmann::ordered_json::array());
  return value;
}

namespace {

using Json = nlohmann::ordered_json;

bool fits_int(const Json& number) {
  return !number.is_number_unsigned() ||
         number.get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max());
}

template <class Test>
bool all(const Json& list, Test test) {
  return std::all_of(list.begin(), list.end(), test);
}

Value list_from_json(Json list) {
  if (all(list, [](const Json& v) { return v.is_number_integer() && fits_int(v); }))
    return list.get<Value::Ints>();
  if (all(list, [](const Json& v) { return v.is_number(); })) return list.get<Value::Floats>();
  if (all(list, [](const Json& v) { return v.is_boolean(); })) {
    Value::Ints ints;
    for (const auto& v : list) ints.push_back(v.get<bool>() ? 1 : 0);
    return ints;
  }
  if (all(list, [](const Json& v) { return v.is_string(); })) {
    Value::Strings strings;
    for (auto& v : list) strings.push_back(std::move(v.get_ref<std::string&>()));
    return strings;
  }
  return Value::nested(std::move(list));
}

Json json_from_tensor(const torch::Tensor& tensor) {
  if (tensor.dim() == 0) {
    if (tensor.scalar_type() == torch::kBool) return tensor.item<bool>();
    if (at::isIntegralType(tensor.scalar_type(), false)) return tensor.item<int64_t>();
    return tensor.item<double>();
  }
  auto list = Json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i)
    list.push_back(json_from_tensor(tensor.select(0, i)));
  return list;
}

}  // namespace

Value value_from_json(Json value) {
  switch (value.type()) {
    case Json::value_t::boolean: return value.get<bool>();
    case Json::value_t::number_integer: return value.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (fits_int(value)) return value.get<int64_t>();
      return value.get<double>();
    case Json::value_t::number_float: return value.get<double>();
    case Json::value_t::string: return std::move(value.get_ref<std::string&>());
    case Json::value_t::array: return list_from_json(std::move(value));
    case Json::value_t::object: return Value::nested(std::move(value));
    default: return {};
  }
}

Json json_from_value(const Value& value) {
  switch (kind_of(value)) {
    case ColumnKind::boolean: return value.boolean();
    case ColumnKind::integer: return value.integer();
    case ColumnKind::number: return value.number();
    case ColumnKind::text: return value.str();
    case ColumnKind::integers: return value.ints();
    case ColumnKind::numbers: return value.floats();
    case ColumnKind::texts: return value.strings();
    case ColumnKind::tensor: return json_from_tensor(value.tensor());
    case ColumnKind::nested: return value.json();
    default: return nullptr;
  }
}

}  // namespace sources
}  // namespace gradus
