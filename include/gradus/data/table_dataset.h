#pragma once

#include <gradus/data/dataset.h>

#include <span>
#include <string>
#include <vector>

namespace gradus {

/// What a column holds, as `Value` gives it.
enum class ColumnKind {
  null,  ///< nothing but nulls
  boolean,
  integer,
  number,  ///< floats; integers of such a column are given as floats
  text,
  integers,  ///< list of int
  numbers,   ///< list of float
  texts,     ///< list of text
  tensor,
  nested,  ///< JSON: lists of lists, structs, lists that contain null
  mixed,   ///< differs from row to row; each row is given as it stands
};

/// "int", "list of float", "text" …: the words of `Value::type_name`.
std::string kind_name(ColumnKind kind);

/// A column as its source describes it.
struct ColumnInfo {
  std::string name = {};               ///< As in the file.
  ColumnKind kind = ColumnKind::null;  ///< What it holds.
  std::string stored_as = {};  ///< the source's own word: "list<item: int32>", "json", "line"
  /// Names of the classes of a `datasets.ClassLabel`, by number; empty for other columns.
  std::vector<std::string> class_names = {};
};

/// A data set read from files, with a schema.
struct TableDataset : Dataset {
  /// The schema.
  virtual const std::vector<ColumnInfo>& columns() const = 0;
  /// Rows left out because they could not be read (see `LoadOptions::skip_bad_rows`).
  virtual int64_t skipped_rows() const { return 0; }
  std::vector<std::string> column_names() const override;
};

/// A column somebody relies on.
struct ColumnNeed {
  /// Name of the column.
  std::string name = {};
  std::vector<ColumnKind> kinds = {};  ///< any of these; empty: any kind
};

/// Throws G-SRC-6 when a column is not there (with the nearest names) and G-SRC-7 when it holds
/// something else. `where` is the file or option for the message. Data sets without a schema are
/// judged by their first row.
void require_columns(const Dataset& dataset, std::span<const ColumnNeed> needs,
                     const std::string& where);

}  // namespace gradus
