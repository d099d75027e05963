#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/record_batch.h>
#include <arrow/type_fwd.h>
#include <gradus/data/load_dataset.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "data/sources/arrow_cell.h"
#include "data/sources/arrow_check.h"
#include "data/sources/block_sums.h"
#include "data/sources/limited_pool.h"
#include "data/sources/source_files.h"

namespace gradus::sources {

/// Which columns of a source are given, under which kind.
struct ArrowColumns {
  std::vector<ColumnInfo> infos;
  std::vector<CellCoding> codings;

  /// Of a schema, less the columns not asked for. Throws G-SRC-6.
  static ArrowColumns of(const arrow::Schema& schema, const std::vector<std::string>& wanted,
                         const std::filesystem::path& file);
  /// Another file's columns must have the same names; kinds that differ are merged. Throws G-SRC-6
  /// and G-SRC-7.
  void merge(const arrow::Schema& schema, const std::filesystem::path& file);
  std::vector<std::string> names() const;
  /// A column's cell as the kind of the whole column.
  Value read(size_t column, const arrow::Array& array, int64_t row) const;
  /// The arrays of `batch` in the order of `infos`.
  std::vector<std::shared_ptr<arrow::Array>> pick(const arrow::RecordBatch& batch) const;
};

/// Rows that lie in a mapped file.
class MappedRows {
 public:
  virtual ~MappedRows() = default;
  /// Gives the pages of the file that row `index` lies in back to the system.
  virtual void release_pages(int64_t index) const = 0;
};

/// Record batches as a data set, in memory or mapped from files.
///
/// A batch is checked in full when the first row of it is read, once.
class ArrowTable : public TableDataset, public MappedRows {
 public:
  explicit ArrowTable(ArrowColumns columns);

  /// Adds rows; `mapping` is the file they lie in, if any, and `sum` the checksum of the bytes they
  /// lie in. Throws G-SRC-8 when the batch is plainly not sound; in full it is checked when the
  /// first row of it is read.
  void append(const arrow::RecordBatch& batch, const std::filesystem::path& file,
              std::shared_ptr<const MappedFile> mapping = nullptr,
              std::optional<BlockSum> sum = std::nullopt);
  /// Adds the rows of a mapped IPC file or stream. Compressed parts of it are unpacked with `pool`.
  /// `sums`: its checksums, if it has them.
  void append_mapped(const std::shared_ptr<const MappedFile>& file,
                     std::shared_ptr<LimitedPool> pool, const std::vector<BlockSum>& sums = {});
  /// Keeps the pool that rows were read with as long as the rows.
  void keep(std::shared_ptr<LimitedPool> pool) { pools_.push_back(std::move(pool)); }
  /// Checks all rows now. Throws as `get`.
  void check_all() const;
  /// Whether all rows have been checked.
  bool all_checked() const { return unchecked_.load(std::memory_order_acquire) == 0; }
  ArrowColumns& arrow_columns() { return columns_; }
  void set_skipped(int64_t rows) { skipped_ = rows; }

  int64_t size() const override { return first_rows_.back(); }
  /// Throws G-SRC-8 for a row of a batch that is damaged.
  Example get(int64_t index) const override;
  const std::vector<ColumnInfo>& columns() const override { return columns_.infos; }
  int64_t skipped_rows() const override { return skipped_; }
  void release_pages(int64_t index) const override;

 private:
  struct Part {
    std::vector<std::shared_ptr<arrow::Array>> arrays = {};
    std::filesystem::path file = {};
    const MappedFile* mapping = nullptr;
    std::optional<BlockSum> sum = {};
    mutable std::mutex checking = {};
    mutable std::atomic<bool> sound = false;  // it has been checked in full
  };
  size_t part_of(int64_t index) const;
  void check(size_t part) const;

  std::vector<std::shared_ptr<LimitedPool>> pools_;  // before what was allocated with them
  ArrowColumns columns_;
  Example
      empty_row_;  // every column and null: copying it is cheaper than adding columns one by one
  std::deque<Part> parts_;
  mutable std::atomic<size_t> unchecked_ = 0;  // parts
  mutable ArrayChecker checker_;
  std::vector<int64_t> first_rows_{0};
  std::vector<std::shared_ptr<const MappedFile>> mappings_;
  int64_t skipped_ = 0;
};

std::shared_ptr<ArrowTable> load_arrow(const std::vector<SourceFile>& files,
                                       const LoadOptions& options);
std::shared_ptr<ArrowTable> load_parquet(const std::vector<SourceFile>& files,
                                         const LoadOptions& options);

/// A file that `ArrowWriter` wrote. Throws G-SRC-8 when it has no checksums or is damaged where
/// that can be seen without reading all of it; reading a row of a damaged block throws it too.
std::shared_ptr<ArrowTable> map_summed_file(const std::shared_ptr<const MappedFile>& mapping);

}  // namespace gradus::sources

#endif
