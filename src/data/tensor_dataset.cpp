#include "data/tensor_dataset.h"

#include "data/index_check.h"
#include "data/row_copy.h"

#include <gradus/core/error.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

namespace gradus {
namespace data {

TensorDataset::TensorDataset(std::vector<std::pair<std::string, torch::Tensor>> columns) {
  for (auto& [name, tensor] : columns) {
    if (!tensor.defined() || tensor.dim() == 0) {
      throw Error(
          "G-DATA-3", ErrorKind::data,
          fmt::format("column '{}' is {}, expected a tensor with rows along its first dimension",
                      name, tensor.defined() ? "a scalar" : "undefined"),
          "Give every column at least one dimension.");
    }
    if (!columns_.empty() && tensor.size(0) != rows_) {
      throw Error("G-DATA-3", ErrorKind::data,
                  fmt::format("column '{}' has {} rows, column '{}' has {}", name, tensor.size(0),
                              columns_.front().name, rows_),
                  "All columns of a data set need the same number of rows.");
    }
    rows_ = tensor.size(0);
    auto values = tensor.detach();
    if (values.is_cpu() && values.layout() == at::kStrided) values = values.contiguous();
    const size_t row_bytes =
        is_plain(values) && rows_ > 0 ? values.nbytes() / static_cast<size_t>(rows_) : 0;
    columns_.push_back({std::move(name), std::move(values), row_bytes});
  }
}

Example TensorDataset::get(int64_t index) const {
  check_index(index, rows_);
  Example row;
  for (const auto& column : columns_) row.set(column.name, column.values[index]);
  return row;
}

torch::Tensor TensorDataset::take(const Column& column, std::span<const int64_t> indices) const {
  if (column.row_bytes == 0) {
    const auto index = at::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()), at::kLong)
                           .to(column.values.device());
    return column.values.index_select(0, index);
  }
  c10::SmallVector<int64_t, 6> shape(column.values.sizes().begin(), column.values.sizes().end());
  shape[0] = static_cast<int64_t>(indices.size());
  auto result = at::empty(shape, column.values.options());
  const auto* from = static_cast<const char*>(column.values.const_data_ptr());
  auto* to = static_cast<char*>(result.data_ptr());
  for (const int64_t index : indices) {
    copy_row(to, from + static_cast<size_t>(index) * column.row_bytes, column.row_bytes);
    to += column.row_bytes;
  }
  return result;
}

std::optional<Batch> TensorDataset::get_batch(std::span<const int64_t> indices) const {
  for (const int64_t index : indices) check_index(index, rows_);
  Batch batch;
  const auto label = [&](const char* name) -> const Column* {
    for (const auto& column : columns_) {
      if (column.name == name) return &column;
    }
    return nullptr;
  };
  if (const auto* column = label("label")) {
    if (column->values.numel() != rows_) return std::nullopt;  // the collator has the message
    batch.set(
        "labels",
        take(*column, indices).to(column->values.is_floating_point() ? at::kFloat : at::kLong));
  } else if (const auto* ids = label("label_ids")) {
    batch.set("labels", take(*ids, indices));
  }
  for (const auto& column : columns_) {
    if (column.name != "label" && column.name != "label_ids")
      batch.set(column.name, take(column, indices));
  }
  return batch;
}

std::vector<std::string> TensorDataset::column_names() const {
  std::vector<std::string> names;
  for (const auto& column : columns_) names.push_back(column.name);
  return names;
}

}  // namespace data

std::shared_ptr<Dataset> from_tensors(std::vector<std::pair<std::string, torch::Tensor>> columns) {
  return std::make_shared<data::TensorDataset>(std::move(columns));
}

}  // namespace gradus
