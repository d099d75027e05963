#pragma once

#include <gradus/data/batch.h>
#include <gradus/data/example.h>

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradus {

/// A data set whose rows can be taken in any order.
///
/// Thread-safety: `get` and `get_many` are called by several loader threads at once and must not
/// change the object.
struct Dataset : std::enable_shared_from_this<Dataset> {
  virtual ~Dataset() = default;
  /// The number of rows.
  virtual int64_t size() const = 0;
  /// The row at `index`, from 0 on.
  virtual Example get(int64_t index) const = 0;
  /// Several rows; override where one visit to the source is cheaper than many.
  virtual std::vector<Example> get_many(std::span<const int64_t> indices) const;
  /// The rows as `default_data_collator` would put them together, for data sets that can do so
  /// without making rows; nothing when this one cannot. The loader asks when its collator is the
  /// default one.
  virtual std::optional<Batch> get_batch(std::span<const int64_t> indices) const;
  /// The columns of a row; empty when not known without reading one.
  virtual std::vector<std::string> column_names() const { return {}; }

  // Views. Each keeps this data set alive, so it must be held by a `std::shared_ptr`.

  /// Applies `function` to each row when the row is read; nothing is computed in advance.
  std::shared_ptr<Dataset> map(std::function<Example(const Example&)> function) const;
  /// The rows for which `keep` is true; asks it once for every row, now.
  std::shared_ptr<Dataset> filter(const std::function<bool(const Example&)>& keep) const;
  /// The rows at `indices`, in that order.
  std::shared_ptr<Dataset> select(std::vector<int64_t> indices) const;
  /// Every `count`-th row from `index` on, or, if `contiguous`, the `index`-th of `count` even
  /// runs.
  std::shared_ptr<Dataset> shard(int64_t count, int64_t index, bool contiguous = true) const;
  /// Only these columns, in the data set's own order. Columns that a row does not have are ignored.
  std::shared_ptr<Dataset> select_columns(std::vector<std::string> names) const;
  /// All but these columns.
  std::shared_ptr<Dataset> remove_columns(std::vector<std::string> names) const;
};

/// A data set that can only be read from front to back.
///
/// Thread-safety: none needed. Calls come one at a time, but with `num_workers` above 0 not all
/// from the same thread.
struct IterableDataset {
  virtual ~IterableDataset() = default;
  /// The next row, or nothing at the end of the pass.
  virtual std::optional<Example> next() = 0;
  /// Back to the first row of pass number `epoch`.
  virtual void reset(int64_t epoch) = 0;
  /// The position, from which `load_state` continues without reading again. Null when it is not
  /// known; the loader then reads from the start and drops rows.
  virtual nlohmann::json save_state() const;
  /// Continues from what `save_state` returned.
  virtual void load_state(const nlohmann::json& state);
  /// From now on only the rows of process `rank` of `world`; false when it cannot, and the loader
  /// then drops the others'.
  virtual bool shard(int64_t rank, int64_t world);
  /// The columns of a row; empty when not known.
  virtual std::vector<std::string> column_names() const { return {}; }
  /// Rows of a pass, of all processes together, for those that know: a run is then planned in
  /// epochs, and needs no `max_steps`.
  virtual std::optional<int64_t> size() const { return std::nullopt; }
};

/// Either kind of data set, or none. Takes any `shared_ptr` to a data set.
class DatasetRef {
 public:
  DatasetRef() = default;
  /// None.
  DatasetRef(std::nullptr_t) {}
  /// A data set whose rows can be taken in any order.
  template <class T>
    requires std::is_base_of_v<Dataset, T>
  DatasetRef(std::shared_ptr<T> dataset) : map_style_(std::move(dataset)) {}
  /// A data set that is read from beginning to end.
  template <class T>
    requires std::is_base_of_v<IterableDataset, T>
  DatasetRef(std::shared_ptr<T> dataset) : iterable_(std::move(dataset)) {}

  /// Whether there is one.
  explicit operator bool() const { return map_style_ || iterable_; }
  /// Whether it is read from beginning to end.
  bool is_iterable() const { return iterable_ != nullptr; }
  /// The data set whose rows can be taken in any order, or null.
  const std::shared_ptr<const Dataset>& map_style() const { return map_style_; }
  /// The data set that is read from beginning to end, or null.
  const std::shared_ptr<IterableDataset>& iterable() const { return iterable_; }
  /// Rows, where that is known.
  std::optional<int64_t> size() const;
  /// The columns of a row, where that is known.
  std::vector<std::string> column_names() const;

 private:
  std::shared_ptr<const Dataset> map_style_;
  std::shared_ptr<IterableDataset> iterable_;
};

/// Rows that are slices of tensors along their first dimension, which must agree. Throws G-DATA-3
/// when it does not.
std::shared_ptr<Dataset> from_tensors(std::vector<std::pair<std::string, torch::Tensor>> columns);

/// Rows held in memory.
std::shared_ptr<Dataset> from_examples(std::vector<Example> rows);

/// The rows of one after those of the other, with the first one's `column_names`. Throws G-DATA-16
/// for a null pointer.
std::shared_ptr<Dataset> concatenate(std::vector<std::shared_ptr<const Dataset>> parts);

}  // namespace gradus
