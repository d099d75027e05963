#pragma once

#include <gradus/data/dataset.h>

namespace gradus::data {

/// Rows are slices of tensors; a batch is gathered column by column without making rows.
class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::vector<std::pair<std::string, torch::Tensor>> columns);
  int64_t size() const override { return rows_; }
  Example get(int64_t index) const override;
  std::optional<Batch> get_batch(std::span<const int64_t> indices) const override;
  std::vector<std::string> column_names() const override;

 private:
  struct Column {
    std::string name;
    torch::Tensor values;
    size_t row_bytes;  ///< 0: not plain memory, use index_select
  };
  torch::Tensor take(const Column& column, std::span<const int64_t> indices) const;

  std::vector<Column> columns_;
  int64_t rows_ = 0;
};

}  // namespace gradus::data
