#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/csv/options.h>
#include <arrow/csv/parser.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/sources/byte_stream.h"
#include "data/sources/file_rows.h"

namespace gradus::sources {

/// The rows of a CSV text, cut and unquoted by Arrow's parser, a block after the other on the
/// caller's thread.
///
/// Arrow's own readers are not used: they read ahead with a thread. How a text is cut depends only
/// on where the reading begins, so that a place once given can be gone to again. Memory: one block,
/// or one row that is longer.
class CsvBlocks {
 public:
  struct Place {
    int64_t offset = 0;  ///< byte of the file
    int64_t line = 1;
  };
  struct Block {
    Place begin = {};
    std::shared_ptr<const arrow::csv::BlockParser> rows = {};
  };

  /// Reads the header. Throws G-SRC-8 when there is none. A row, the header included, may have up
  /// to `longest_row` bytes, and never 2 GiB or more, which Arrow could not address.
  CsvBlocks(std::unique_ptr<ByteStream> stream, std::filesystem::path file, char delimiter,
            size_t block_size, int64_t longest_row);

  /// Of the columns, as pandas has them ("Unnamed: 0" for none, "a.1" for a second "a"); empty when
  /// the file is.
  const std::vector<std::string>& names() const { return names_; }
  /// The next rows, perhaps none; nothing at the end. Rows with too many fields go to `bad_rows`,
  /// short ones are filled up with nulls. Throws G-SRC-4 for one bad row too many, G-SRC-8 for a
  /// row that does not end (an open quotation mark) and G-SRC-19 for one that is too long.
  std::optional<Block> next(BadRows& bad_rows);
  /// The first row after the header.
  Place first() const { return first_; }
  /// Go on at a place that `first` or a block gave.
  void seek(Place place);

 private:
  std::string_view with_line_end();
  void skip_mark();
  void read_header();
  void fill(size_t size);
  std::string_view filled() const {
    return std::string_view(buffer_).substr(begin_, end_ - begin_);
  }
  void drop(size_t bytes);
  void make_room(size_t& size) const;

  std::unique_ptr<ByteStream> stream_;
  std::filesystem::path file_;
  size_t block_size_, longest_row_;
  arrow::csv::ParseOptions parsing_;
  std::vector<std::string> names_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // what of the buffer was read and not yet parsed
  bool at_end_ = false;         // of the file
  Place place_, first_;         // place_: of begin_
};

}  // namespace gradus::sources

#endif
