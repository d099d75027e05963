#include <gradus/core/error.h>
#include <gradus/data/dataset.h>

#include "data/index_check.h"
#include "data/required.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <numeric>
#include <unordered_set>

namespace gradus {
namespace data {

void throw_index(int64_t index, int64_t rows) {
  throw Error("G-DATA-4", ErrorKind::data,
              fmt::format("row {} was requested, the data set has {} rows (0 to {})", index, rows,
                          rows - 1),
              "Check the indices of select() or of the sampler.");
}

namespace {

using Parent = std::shared_ptr<const Dataset>;

class MapView final : public Dataset {
 public:
  MapView(Parent parent, std::function<Example(const Example&)> function)
      : parent_(std::move(parent)), function_(std::move(function)) {}
  int64_t size() const override { return parent_->size(); }
  Example get(int64_t index) const override { return function_(parent_->get(index)); }
  std::vector<Example> get_many(std::span<const int64_t> indices) const override {
    auto rows = parent_->get_many(indices);
    for (auto& row : rows) row = function_(row);
    return rows;
  }

 private:
  Parent parent_;
  std::function<Example(const Example&)> function_;
};

/// Rows of the parent under other numbers.
class RenumberedView : public Dataset {
 public:
  Example get(int64_t index) const override { return parent_->get(checked(index)); }
  std::vector<Example> get_many(std::span<const int64_t> indices) const override {
    return parent_->get_many(translate(indices));
  }
  std::optional<Batch> get_batch(std::span<const int64_t> indices) const override {
    return parent_->get_batch(translate(indices));
  }
  std::vector<std::string> column_names() const override { return parent_->column_names(); }

 protected:
  explicit RenumberedView(Parent parent) : parent_(std::move(parent)) {}
  /// The parent's number of row `index`, which is one of this view's.
  virtual int64_t number_of(int64_t index) const = 0;

  Parent parent_;

 private:
  int64_t checked(int64_t index) const {
    check_index(index, size());
    return number_of(index);
  }
  std::vector<int64_t> translate(std::span<const int64_t> indices) const {
    std::vector<int64_t> result;
    result.reserve(indices.size());
    for (const int64_t index : indices) result.push_back(checked(index));
    return result;
  }
};

class SelectView final : public RenumberedView {
 public:
  SelectView(Parent parent, std::vector<int64_t> indices)
      : RenumberedView(std::move(parent)), indices_(std::move(indices)) {
    const int64_t rows = parent_->size();
    for (const int64_t index : indices_) check_index(index, rows);
  }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }

 private:
  int64_t number_of(int64_t index) const override { return indices_[static_cast<size_t>(index)]; }

  std::vector<int64_t> indices_;
};

/// Rows first, first + step, … without a list of them.
class StrideView final : public RenumberedView {
 public:
  StrideView(Parent parent, int64_t first, int64_t step, int64_t rows)
      : RenumberedView(std::move(parent)), first_(first), step_(step), rows_(rows) {}
  int64_t size() const override { return rows_; }

 private:
  int64_t number_of(int64_t index) const override { return first_ + index * step_; }

  int64_t first_;
  int64_t step_;
  int64_t rows_;
};

class ColumnView final : public Dataset {
 public:
  ColumnView(Parent parent, std::vector<std::string> names, bool keep)
      : parent_(std::move(parent)), names_(names.begin(), names.end()), keep_(keep) {}
  int64_t size() const override { return parent_->size(); }
  Example get(int64_t index) const override { return cut(parent_->get(index)); }
  std::vector<Example> get_many(std::span<const int64_t> indices) const override {
    auto rows = parent_->get_many(indices);
    for (auto& row : rows) row = cut(std::move(row));
    return rows;
  }
  std::optional<Batch> get_batch(std::span<const int64_t> indices) const override {
    auto batch = parent_->get_batch(indices);
    if (!batch) return batch;
    const bool has_label = wanted("label") || wanted("label_ids");
    for (const auto& name : batch->names()) {
      if (!wanted(name) && !(name == "labels" && has_label)) batch->pop(name);
    }
    return batch;
  }
  std::vector<std::string> column_names() const override {
    auto names = parent_->column_names();
    std::erase_if(names, [&](const auto& name) { return !wanted(name); });
    return names;
  }

 private:
  bool wanted(const std::string& name) const { return names_.contains(name) == keep_; }
  Example cut(Example row) const {
    for (const auto& name : row.names()) {
      if (!wanted(name)) row.erase(name);
    }
    return row;
  }

  Parent parent_;
  std::unordered_set<std::string> names_;
  bool keep_;
};

class ExampleDataset final : public Dataset {
 public:
  explicit ExampleDataset(std::vector<Example> rows) : rows_(std::move(rows)) {}
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  Example get(int64_t index) const override {
    check_index(index, size());
    return rows_[static_cast<size_t>(index)];
  }
  std::vector<std::string> column_names() const override {
    return rows_.empty() ? std::vector<std::string>{} : rows_.front().names();
  }

 private:
  std::vector<Example> rows_;
};

class Concatenation final : public Dataset {
 public:
  explicit Concatenation(std::vector<Parent> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_)
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Example get(int64_t index) const override {
    check_index(index, size());
    const auto part =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return parts_[part]->get(index - (part == 0 ? 0 : ends_[part - 1]));
  }
  std::vector<std::string> column_names() const override {
    return parts_.empty() ? std::vector<std::string>{} : parts_.front()->column_names();
  }

 private:
  std::vector<Parent> parts_;
  std::vector<int64_t> ends_;
};

}  // namespace
}  // namespace data

std::vector<Example> Dataset::get_many(std::span<const int64_t> indices) const {
  std::vector<Example> rows;
  rows.reserve(indices.size());
  for (const int64_t index : indices) rows.push_back(get(index));
  return rows;
}

std::optional<Batch> Dataset::get_batch(std::span<const int64_t>) const { return std::nullopt; }

std::shared_ptr<Dataset> Dataset::map(std::function<Example(const Example&)> function) const {
  return std::make_shared<data::MapView>(shared_from_this(), std::move(function));
}

std::shared_ptr<Dataset> Dataset::filter(const std::function<bool(const Example&)>& keep) const {
  std::vector<int64_t> kept;
  const int64_t rows = size();
  for (int64_t index = 0; index < rows; ++index) {
    if (keep(get(index))) kept.push_back(index);
  }
  return select(std::move(kept));
}

std::shared_ptr<Dataset> Dataset::select(std::vector<int64_t> indices) const {
  return std::make_shared<data::SelectView>(shared_from_this(), std::move(indices));
}

std::shared_ptr<Dataset> Dataset::shard(int64_t count, int64_t index, bool contiguous) const {
  if (count < 1 || index < 0 || index >= count) {
    throw Error("G-DATA-4", ErrorKind::data,
                fmt::format("there is no shard {} of {}", index, count),
                "The index goes from 0 to count - 1.");
  }
  const int64_t rows = size();
  if (!contiguous)
    return std::make_shared<data::StrideView>(shared_from_this(), index, count,
                                              (rows - index + count - 1) / count);
  const int64_t each = rows / count;
  const int64_t longer = rows % count;  // the first `longer` parts have one row more
  const int64_t first = each * index + std::min(index, longer);
  return std::make_shared<data::StrideView>(shared_from_this(), first, 1,
                                            each + (index < longer ? 1 : 0));
}

std::shared_ptr<Dataset> Dataset::select_columns(std::vector<std::string> names) const {
  return std::make_shared<data::ColumnView>(shared_from_this(), std::move(names), true);
}

std::shared_ptr<Dataset> Dataset::remove_columns(std::vector<std::string> names) const {
  return std::make_shared<data::ColumnView>(shared_from_this(), std::move(names), false);
}

nlohmann::json IterableDataset::save_state() const { return nullptr; }

void IterableDataset::load_state(const nlohmann::json&) {
  throw Error("G-DATA-9", ErrorKind::data,
              "this iterable data set cannot continue from a saved state",
              "Implement save_state() and load_state(), or resume without the state.");
}

bool IterableDataset::shard(int64_t, int64_t) { return false; }

std::optional<int64_t> DatasetRef::size() const {
  if (map_style_) return map_style_->size();
  return iterable_ ? iterable_->size() : std::nullopt;
}

std::vector<std::string> DatasetRef::column_names() const {
  if (map_style_) return map_style_->column_names();
  return iterable_ ? iterable_->column_names() : std::vector<std::string>{};
}

std::shared_ptr<Dataset> from_examples(std::vector<Example> rows) {
  return std::make_shared<data::ExampleDataset>(std::move(rows));
}

std::shared_ptr<Dataset> concatenate(std::vector<std::shared_ptr<const Dataset>> parts) {
  return std::make_shared<data::Concatenation>(data::required(std::move(parts), "concatenate"));
}

}  // namespace gradus
