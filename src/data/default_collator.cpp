#include <gradus/core/error.h>
#include <gradus/data/collators.h>

#include "data/column_collate.h"
#include "data/nested_tensor.h"
#include "data/row_copy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace gradus {
namespace {

using Column = std::vector<const Value*>;

[[noreturn]] void throw_value(std::string_view name, size_t row, const std::string& found,
                              const std::string& wanted) {
  throw Error(
      "G-DATA-6", ErrorKind::data,
      fmt::format("column '{}' cannot become a tensor: row {} of the batch holds {}, expected {}",
                  name, row, found, wanted),
      "Convert the column with map(), leave it out with remove_columns(), or pass a data_collator "
      "that knows it.");
}

[[noreturn]] void throw_ragged(std::string_view name, size_t row, const std::string& found,
                               const std::string& wanted) {
  throw Error(
      "G-DATA-7", ErrorKind::data,
      fmt::format("column '{}' cannot be stacked: row {} of the batch has {}, the first row {}",
                  name, row, found, wanted),
      "Rows of different length need padding: use DataCollatorWithPadding, or make all rows "
      "equally long with map().");
}

torch::Tensor stack_tensors(std::string_view name, const Column& column) {
  const auto& first = column.front()->tensor();
  bool plain = true;
  for (size_t row = 0; row < column.size(); ++row) {
    if (!column[row]->is_tensor()) throw_value(name, row, column[row]->type_name(), "tensor");
    const auto& tensor = column[row]->tensor();
    if (tensor.sizes() != first.sizes())
      throw_ragged(name, row, fmt::format("shape [{}]", fmt::join(tensor.sizes(), ", ")),
                   fmt::format("[{}]", fmt::join(first.sizes(), ", ")));
    plain = plain && tensor.scalar_type() == first.scalar_type() && data::is_plain(tensor);
  }
  if (!plain) {
    std::vector<torch::Tensor> tensors;
    for (const auto* value : column) tensors.push_back(value->tensor());
    return at::stack(tensors);
  }
  c10::SmallVector<int64_t, 6> shape{static_cast<int64_t>(column.size())};
  shape.append(first.sizes().begin(), first.sizes().end());
  auto result = at::empty(shape, first.options());
  const size_t bytes = first.nbytes();
  auto* to = static_cast<char*>(result.data_ptr());
  for (const auto* value : column) {
    data::copy_row(to, value->tensor().const_data_ptr(), bytes);
    to += bytes;
  }
  return result;
}

/// What Python's `torch.tensor` makes of a list of numbers: bool if all are, int64 without a float,
/// else float32.
at::ScalarType number_type(std::string_view name, const Column& column) {
  bool any_double = false;
  bool all_bool = true;
  for (size_t row = 0; row < column.size(); ++row) {
    const auto& value = *column[row];
    if (!value.is_double() && !value.is_int() && !value.is_bool())
      throw_value(name, row, value.type_name(), "a number");
    any_double |= value.is_double();
    all_bool &= value.is_bool();
  }
  return any_double ? at::kFloat : all_bool ? at::kBool : at::kLong;
}

torch::Tensor numbers(const Column& column, at::ScalarType type) {
  auto result = at::empty({static_cast<int64_t>(column.size())}, type);
  for (size_t row = 0; row < column.size(); ++row) {
    const auto& value = *column[row];
    if (type == at::kFloat)
      static_cast<float*>(result.data_ptr())[row] =
          static_cast<float>(value.is_bool() ? value.boolean() : value.number());
    else if (type == at::kLong)
      static_cast<int64_t*>(result.data_ptr())[row] =
          value.is_double() ? static_cast<int64_t>(value.number()) : value.integer();
    else
      static_cast<bool*>(result.data_ptr())[row] = value.boolean();
  }
  return result;
}

size_t length_of(const Value& value) {
  return value.is_ints() ? value.ints().size() : value.floats().size();
}

torch::Tensor lists(std::string_view name, const Column& column) {
  const size_t length = length_of(*column.front());
  bool any_float = false;
  for (size_t row = 0; row < column.size(); ++row) {
    const auto& value = *column[row];
    if (!value.is_ints() && !value.is_floats())
      throw_value(name, row, value.type_name(), "a list of numbers");
    if (length_of(value) != length)
      throw_ragged(name, row, fmt::format("{} values", length_of(value)),
                   fmt::format("{}", length));
    any_float |= value.is_floats();
  }
  const std::vector<int64_t> shape{static_cast<int64_t>(column.size()),
                                   static_cast<int64_t>(length)};
  auto result = at::empty(shape, any_float ? at::kFloat : at::kLong);
  for (size_t row = 0; row < column.size(); ++row) {
    const auto& value = *column[row];
    if (!any_float)
      std::copy(value.ints().begin(), value.ints().end(),
                result.data_ptr<int64_t>() + row * length);
    else if (value.is_ints())
      std::copy(value.ints().begin(), value.ints().end(), result.data_ptr<float>() + row * length);
    else
      std::copy(value.floats().begin(), value.floats().end(),
                result.data_ptr<float>() + row * length);
  }
  return result;
}

torch::Tensor nested(std::string_view name, const Column& column) {
  auto all = nlohmann::ordered_json::array();
  for (size_t row = 0; row < column.size(); ++row) {
    const auto& value = *column[row];
    if (value.is_nested())
      all.push_back(value.json());
    else if (value.is_ints())
      all.push_back(value.ints());  // an empty list among lists of lists
    else
      throw_value(name, row, value.type_name(), "nested lists of numbers");
  }
  try {
    return data::nested_tensor(all);
  } catch (const Error& error) {
    throw Error(error.id(), error.kind(), fmt::format("column '{}': {}", name, error.message()),
                error.advice());
  }
}

torch::Tensor collate(std::string_view name, const Column& column) {
  const auto& first = *column.front();
  if (first.is_tensor()) return stack_tensors(name, column);
  if (first.is_ints() || first.is_floats()) return lists(name, column);
  if (first.is_nested()) return nested(name, column);
  if (first.is_strings()) throw_value(name, 0, first.type_name(), "numbers");
  return numbers(column, number_type(name, column));
}

/// `label`: int64 for integers (and bools), float32 for floats, whatever the rows after the first
/// hold.
torch::Tensor collate_label(const Column& column) {
  const auto& first = *column.front();
  if (first.is_tensor()) {
    if (first.tensor().numel() != 1)
      throw_value("label", 0, fmt::format("a tensor of {} values", first.tensor().numel()),
                  "one label per row");
    const auto stacked = stack_tensors("label", column);
    return stacked.to(stacked.is_floating_point() ? at::kFloat : at::kLong);
  }
  if (first.is_ints() || first.is_floats())
    return lists("label", column).to(at::kFloat);  // as the peer: not an int, so float
  number_type("label", column);
  return numbers(column, first.is_double() ? at::kFloat : at::kLong);
}

Column gather(const std::vector<Example>& rows, std::string_view name, size_t place) {
  Column column(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& example = rows[row];
    // Rows of one source have their columns in one order, so the first look is nearly always right.
    const bool there =
        place < example.size() && (example.begin() + static_cast<ptrdiff_t>(place))->first == name;
    column[row] =
        there ? &(example.begin() + static_cast<ptrdiff_t>(place))->second : &example.at(name);
  }
  return column;
}

}  // namespace

namespace data {

torch::Tensor collate_column(const std::vector<Example>& rows, std::string_view name,
                             size_t place) {
  return collate(name, gather(rows, name, place));
}

IntLists::IntLists(const std::vector<Example>& rows, std::string_view name) {
  lists_.reserve(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) add(rows[row].at(name), name, row);
}

IntLists::IntLists(std::span<const Value* const> values, std::string_view name) {
  lists_.reserve(values.size());
  for (size_t row = 0; row < values.size(); ++row) add(*values[row], name, row);
}

void IntLists::add(const Value& value, std::string_view name, size_t row) {
  if (value.is_ints()) {
    lists_.emplace_back(value.ints());
    return;
  }
  const bool empty = (value.is_floats() && value.floats().empty()) ||
                     (value.is_strings() && value.strings().empty()) ||
                     (value.is_nested() && value.json().is_array() && value.json().empty());
  if (empty) {
    lists_.emplace_back();
    return;
  }
  if (!value.is_tensor() || value.tensor().dim() != 1 || value.tensor().is_floating_point())
    throw_value(name, row, value.type_name(), "a list of int");
  kept_.push_back(value.tensor().to(at::kCPU, at::kLong).contiguous());
  lists_.emplace_back(kept_.back().const_data_ptr<int64_t>(),
                      static_cast<size_t>(kept_.back().numel()));
}

}  // namespace data

Batch default_data_collator(std::vector<Example> rows) {
  Batch batch;
  if (rows.empty()) return batch;
  const auto& first = rows.front();
  const auto* label = first.find("label");
  const auto* label_ids = first.find("label_ids");
  if (label != nullptr && !label->is_null() && !label->is_string())
    batch.set("labels", collate_label(gather(rows, "label", 0)));
  else if (label_ids != nullptr && !label_ids->is_null())
    batch.set("labels", collate("label_ids", gather(rows, "label_ids", 0)));
  size_t place = 0;
  for (const auto& [name, value] : first) {
    const size_t here = place++;
    if (name == "label" || name == "label_ids" || value.is_null() || value.is_string()) continue;
    batch.set(name, collate(name, gather(rows, name, here)));
  }
  return batch;
}

}  // namespace gradus
