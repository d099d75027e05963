#pragma once

#include <gradus/core/error.h>
#include <gradus/data/example.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/sources/source_files.h"

namespace gradus::sources {

/// The rows of one file from front to back.
class FileRows {
 public:
  virtual ~FileRows() = default;
  virtual std::optional<Example> next() = 0;
  /// Where the next row lies, for `seek` in the same file.
  virtual nlohmann::json position() const = 0;
  virtual void seek(const nlohmann::json& position) = 0;
  /// Of every row; empty when only the rows themselves tell.
  virtual std::vector<std::string> column_names() const { return {}; }
};

/// Counts the rows that could not be read, over all files of a stream.
struct BadRows {
  int64_t allowed = 0;
  int64_t skipped = 0;
  bool silent = false;  ///< the rows will be met again
  /// Reports the row and goes on, or throws when it is one too many.
  void skip(const Error& error);
};

/// Throws G-SRC-9 without Arrow.
std::unique_ptr<FileRows> open_parquet_rows(const SourceFile& file, const LoadOptions& options);

}  // namespace gradus::sources
