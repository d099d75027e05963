#include "tasks/class_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <algorithm>

namespace gradus::tasks {
namespace {

[[noreturn]] void refuse_cell(const std::string& where, const std::string& column,
                              const std::string& found, const std::string& expected,
                              const std::string& advice) {
  throw Error("G-TASK-11", ErrorKind::data,
              fmt::format("{}: column '{}' holds {}, expected {}", where, column, found, expected),
              advice);
}

std::vector<std::string> list_items(const Value& value, const std::string& column,
                                    const std::string& where) {
  std::vector<std::string> items;
  if (value.is_strings()) return value.strings();
  if (value.is_ints())
    for (const auto item : value.ints()) items.push_back(std::to_string(item));
  else if (value.is_floats())
    refuse_cell(where, column, value.type_name(), "a list of labels",
                "Give each row the names of the labels that fit, as text or whole numbers, not a "
                "row of zeros and ones.");
  else if (!(value.is_nested() && value.json().is_array() && value.json().empty()))
    refuse_cell(where, column, value.type_name(), "a list of labels",
                "Give each row a list, an empty one where no label fits.");
  return items;
}

}  // namespace

std::string problem_name(Problem problem) {
  switch (problem) {
    case Problem::regression: return "regression";
    case Problem::single_label: return "single_label_classification";
    case Problem::multi_label: return "multi_label_classification";
  }
  return "?";
}

std::string label_text(const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  return json_number(value.number());
}

nlohmann::json ClassLabels::config_changes() const {
  if (problem == Problem::regression) return {{"num_labels", 1}};
  nlohmann::json changes = {{"num_labels", names.size()},
                            {"id2label", nlohmann::json::object()},
                            {"label2id", nlohmann::json::object()}};
  for (size_t i = 0; i < names.size(); ++i) {
    changes["id2label"][std::to_string(i)] = names[i];
    changes["label2id"][names[i]] = i;
  }
  return changes;
}

int64_t ClassLabels::number_of(const std::string& label, const std::string& column,
                               const std::string& where) const {
  const auto found = std::find(names.begin(), names.end(), label);
  if (found == names.end()) {
    const auto shown = std::min<size_t>(names.size(), 20);
    refuse_cell(where, column, "the label '" + label + "'",
                fmt::format("one of the {} labels {}{}", names.size(),
                            fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "),
                            shown < names.size() ? " …" : ""),
                "Train with data that has all labels, or correct the row.");
  }
  return found - names.begin();
}

const std::string* ClassLabels::stored_name(int64_t number,
                                            const std::vector<std::string>& stored) const {
  if (number < 0 || number >= int64_t(stored.size())) return nullptr;
  const auto& name = stored[static_cast<size_t>(number)];
  return std::find(names.begin(), names.end(), name) != names.end() ? &name : nullptr;
}

Value ClassLabels::target(const Value& cell, const std::string& column, const std::string& where,
                          const std::vector<std::string>& stored) const {
  if (problem == Problem::regression) {
    if (!cell.is_double() && !cell.is_int() && !cell.is_bool())
      refuse_cell(where, column, cell.is_null() ? "null" : cell.type_name(), "a number",
                  "Regression needs a number in every row.");
    return cell.is_bool() ? double(cell.boolean()) : cell.number();
  }
  if (problem == Problem::multi_label) {
    Value::Floats hot(names.size(), 0.0);
    auto items = list_items(cell, column, where);
    if (cell.is_ints())
      for (size_t i = 0; i < items.size(); ++i)
        if (const auto* name = stored_name(cell.ints()[i], stored)) items[i] = *name;
    for (const auto& item : items) hot[static_cast<size_t>(number_of(item, column, where))] = 1.0;
    return hot;
  }
  if (cell.is_null() || cell.is_tensor() || cell.is_nested() || cell.is_ints() ||
      cell.is_floats() || cell.is_strings())
    refuse_cell(where, column, cell.is_null() ? "null" : cell.type_name(), "a label",
                "Give every row one label.");
  const bool is_none = (cell.is_int() || cell.is_double()) &&
                       cell.number() == -1;  // the text "-1" is a label like others
  if (is_none) return int64_t{-1};
  if (cell.is_int())
    if (const auto* name = stored_name(cell.integer(), stored))
      return number_of(*name, column, where);
  const bool counts =
      cell.is_int() && !are_own_names(names) && cell.integer() >= 0 &&
      cell.integer() < int64_t(names.size());  // LABEL_0, LABEL_1 …: numbers are all there is
  return counts ? cell.integer() : number_of(label_text(cell), column, where);
}

Problem problem_of(const Split& split, const std::string& column, std::optional<bool> regression) {
  if (regression.value_or(false)) return Problem::regression;
  const auto* info = split.column(column);
  const auto kind = info != nullptr ? info->kind : ColumnKind::null;
  if (!regression && kind == ColumnKind::number) return Problem::regression;
  const bool is_list = kind == ColumnKind::texts || kind == ColumnKind::integers ||
                       kind == ColumnKind::numbers || kind == ColumnKind::nested;
  return is_list ? Problem::multi_label : Problem::single_label;
}

std::set<std::string> labels_in(const Split& split, const std::string& column,
                                MissingLabels missing) {
  std::set<std::string> labels;
  const auto cells = split.rows->select_columns({column});
  for (int64_t i = 0; i < cells->size(); ++i) {
    const auto row = cells->get(i);
    const auto& cell = row.at(column);
    if (cell.is_null() && missing == MissingLabels::skip) continue;
    if (cell.is_null())
      refuse_cell(fmt::format("{}, row {}", split.where, i), column, "null", "a label",
                  "Give every row a label.");
    if (cell.is_strings() || cell.is_ints() || cell.is_floats() || cell.is_nested())
      for (auto& item : list_items(cell, column, split.where)) labels.insert(std::move(item));
    else
      labels.insert(label_text(cell));
  }
  return labels;
}

std::vector<std::string> configured_names(const nlohmann::json& config) {
  const auto table = config.find("id2label");
  if (table == config.end() || !table->is_object()) return {};
  std::vector<std::string> names;
  for (size_t i = 0; i < table->size(); ++i) {
    const auto name = table->find(std::to_string(i));
    if (name == table->end() || !name->is_string()) return {};
    names.push_back(name->get<std::string>());
  }
  return names;
}

bool are_own_names(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != fmt::format("LABEL_{}", i)) return true;
  return false;
}

}  // namespace gradus::tasks
