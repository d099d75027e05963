#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/record_batch.h>
#include <arrow/type_fwd.h>
#include <gradus/data/load_dataset.h>

#include <memory>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "data/sources/arrow_cell.h"
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

/// Record batches as a data set, in memory or mapped from files.
class ArrowTable : public TableDataset {
 public:
  explicit ArrowTable(ArrowColumns columns);

  /// Adds rows; `mapping` is the file they lie in, if any. Throws G-SRC-8 when the batch is not
  /// sound.
  void append(const arrow::RecordBatch& batch, const std::filesystem::path& file,
              std::shared_ptr<const MappedFile> mapping = nullptr);
  /// Adds the rows of a mapped IPC file or stream.
  void append_mapped(const std::shared_ptr<const MappedFile>& file);
  ArrowColumns& arrow_columns() { return columns_; }
  void set_skipped(int64_t rows) { skipped_ = rows; }

  int64_t size() const override { return first_rows_.back(); }
  Example get(int64_t index) const override;
  const std::vector<ColumnInfo>& columns() const override { return columns_.infos; }
  int64_t skipped_rows() const override { return skipped_; }
  /// Gives the pages of the file that row `index` lies in back to the system.
  void release_pages(int64_t index) const;

 private:
  struct Part {
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    const MappedFile* mapping = nullptr;
  };
  size_t part_of(int64_t index) const;

  ArrowColumns columns_;
  Example
      empty_row_;  // every column and null: copying it is cheaper than adding columns one by one
  std::vector<Part> parts_;
  std::vector<int64_t> first_rows_{0};
  std::vector<std::shared_ptr<const MappedFile>> mappings_;
  int64_t skipped_ = 0;
};

std::shared_ptr<ArrowTable> load_arrow(const std::vector<SourceFile>& files,
                                       const LoadOptions& options);
std::shared_ptr<ArrowTable> load_parquet(const std::vector<SourceFile>& files,
                                         const LoadOptions& options);

/// An IPC file or stream that is mapped, as a table of its own.
std::shared_ptr<ArrowTable> map_arrow_file(std::shared_ptr<const MappedFile> mapping,
                                           const std::vector<std::string>& columns);

}  // namespace gradus::sources

#endif
