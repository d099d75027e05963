#include "data/sources/parquet_writer.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>

#include "data/sources/source_errors.h"

#ifdef GRADUS_WITH_ARROW
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>

#include "data/sources/arrow_rows.h"
#endif

namespace gradus::sources {

#ifdef GRADUS_WITH_ARROW

void write_parquet(const std::filesystem::path& file, std::span<const Example> rows) {
  RowSchema columns;
  for (const auto& row : rows) columns.add(row);
  const auto schema = arrow_schema_of(columns);
  const auto batch = record_batch_of(rows, columns, schema, file);
  const auto table = taken(arrow::Table::FromRecordBatches(schema, {batch}), file);
  const auto buffer = taken(arrow::io::BufferOutputStream::Create(), file);
  try {
    check_write(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), buffer), file);
  } catch (const parquet::ParquetException& error) {
    check_write(arrow::Status::IOError(error.what()), file);
  }
  write_file_atomically(file, taken(buffer->Finish(), file)->ToString());
}

#else

void write_parquet(const std::filesystem::path& file, std::span<const Example>) {
  throw needs_arrow("writing " + file.string());
}

#endif

}  // namespace gradus::sources
