#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/csv/converter.h>
#include <arrow/csv/parser.h>
#include <arrow/type_fwd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gradus::sources {

/// The cells of one CSV column, converted block by block.
///
/// The type is given, or the first of null, int64, bool, double and text that holds all cells.
/// Dates and times stay text, as with pandas.
class CsvColumn {
 public:
  /// `type`: null when it is to be found.
  CsvColumn(std::string name, int32_t index, std::shared_ptr<arrow::DataType> type,
            std::filesystem::path file);

  const std::string& name() const { return name_; }
  /// Converts the cells of the next block. Throws G-SRC-8 for one that is not of the given type.
  void add(const arrow::csv::BlockParser& rows);
  /// The blocks up to the last whose cells have a type that later ones did not fit: those are to be
  /// given to `redo` again.
  size_t stale_blocks() const;
  /// Converts the cells of block number `block` once more if need be. May leave other blocks stale.
  void redo(size_t block, const arrow::csv::BlockParser& rows);
  /// All blocks, when none is stale. Throws G-SRC-8 for text that is not UTF-8.
  std::shared_ptr<arrow::ChunkedArray> finish();

 private:
  std::shared_ptr<arrow::Array> convert(const arrow::csv::BlockParser& rows);
  void widen();

  struct Cells {
    std::shared_ptr<arrow::Array> array;
    size_t type;  // place in the list of types at that time
  };
  std::string name_;
  int32_t index_;
  std::filesystem::path file_;
  bool given_;
  size_t type_ = 0;
  bool not_utf8_ = false;
  std::shared_ptr<arrow::csv::Converter> converter_;
  std::vector<Cells> blocks_;
};

/// A column for each name. `types`: empty, or one for each, null where it is to be found.
std::vector<CsvColumn> make_csv_columns(const std::vector<std::string>& names,
                                        const std::vector<std::shared_ptr<arrow::DataType>>& types,
                                        const std::filesystem::path& file);
std::shared_ptr<arrow::Table> csv_table(std::vector<CsvColumn>& columns);

}  // namespace gradus::sources

#endif
