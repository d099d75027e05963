#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/type_fwd.h>
#include <gradus/data/table_dataset.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sources/block_sums.h"
#include "data/sources/row_schema.h"

namespace arrow::ipc {
class RecordBatchWriter;
}

namespace gradus::sources {

/// Writes rows as an Arrow IPC file that `map_summed_file` reads: under a temporary name first,
/// renamed by `close`. At its end are checksums of every block (block_sums.h).
///
/// The columns and types are those of the rows; when later rows need a wider type (floats after
/// ints, text after nulls) what was written is rewritten with it. Nested and mixed cells are stored
/// as JSON. Destroyed without `close`, it leaves nothing behind.
class ArrowWriter {
 public:
  explicit ArrowWriter(std::filesystem::path path);
  ~ArrowWriter();
  ArrowWriter(const ArrowWriter&) = delete;
  ArrowWriter& operator=(const ArrowWriter&) = delete;

  /// Throws G-IO-2 when the disk is full.
  void append(std::span<const Example> rows);
  /// Syncs the file and gives it its name. Throws G-IO-2.
  void close();

 private:
  void start();
  void write(std::span<const Example> rows);
  void rewrite();
  void finish_file();

  std::filesystem::path path_, temporary_;
  RowSchema schema_;
  std::vector<ColumnKind> written_kinds_;
  std::shared_ptr<arrow::Schema> arrow_schema_;
  std::shared_ptr<SummedOutput> output_;
  std::shared_ptr<arrow::ipc::RecordBatchWriter> writer_;
  bool closed_ = false;
};

}  // namespace gradus::sources

#endif
