#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/result.h>
#include <arrow/type_fwd.h>
#include <gradus/data/example.h>

#include <filesystem>
#include <memory>
#include <span>

#include "data/sources/row_schema.h"

namespace gradus::sources {

/// The types of the columns. Nested and mixed cells are text, with a note that it is JSON.
std::shared_ptr<arrow::Schema> arrow_schema_of(const RowSchema& columns);

/// The rows as Arrow keeps them. `schema` is that of `columns`; `file` is named in messages. Throws
/// G-IO-2.
std::shared_ptr<arrow::RecordBatch> record_batch_of(std::span<const Example> rows,
                                                    const RowSchema& columns,
                                                    const std::shared_ptr<arrow::Schema>& schema,
                                                    const std::filesystem::path& file);

/// Throws G-IO-2 for a write that has failed.
void check_write(const arrow::Status& status, const std::filesystem::path& file);

/// What a function of Arrow gives, or G-IO-2.
template <class T>
T taken(arrow::Result<T> result, const std::filesystem::path& file) {
  check_write(result.status(), file);
  return std::move(result).ValueUnsafe();
}

}  // namespace gradus::sources

#endif
