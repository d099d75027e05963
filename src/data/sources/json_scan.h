#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradus::sources {

/// Finds where the rows of a JSON document begin and end, in one pass and without a tree: the
/// elements of a top-level list, of the list under a top-level key, or the values of a document
/// that holds several after each other.
///
/// It only matches brackets and quotes; whether a row is JSON its parser says.
class JsonScanner {
 public:
  /// Called with [start, end) of each row, in bytes from the beginning of the document.
  using Emit = std::function<void(int64_t start, int64_t end)>;

  /// With `field`, the rows are the elements of that key's list.
  JsonScanner(std::optional<std::string> field, Emit emit)
      : field_(std::move(field)), emit_(std::move(emit)) {}

  /// The next bytes of the document.
  void feed(std::string_view bytes);
  /// No more will come. Gives what is wrong: cut short, `field` not there or not a list; nothing
  /// when all is well.
  std::optional<std::string> finish();

 private:
  void in_string(char c);
  void structural(char c);
  void open_bracket(char c);
  void close_bracket();
  bool at_row_level() const {
    return (in_rows_ || (started_ && !field_ && rows_depth_ == 0)) && depth_ == rows_depth_;
  }
  void begin_row();
  void end_row(int64_t end);

  std::optional<std::string> field_;
  Emit emit_;
  int64_t at_ = 0;
  int64_t depth_ = 0;
  int64_t rows_depth_ =
      0;  // 0: values after each other; 1: elements of the top list; 2: of the field's list
  bool started_ = false;  // the first character of the document was seen
  bool in_rows_ = false;  // inside the list that holds the rows
  bool done_ = false;     // that list has ended
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_scalar_ = false;
  std::optional<int64_t> row_start_;
  std::string key_;  // of the top-level object, as written
  bool reading_key_ = false;
  bool expect_key_ = false;
  bool expect_rows_ = false;  // after `field` and its colon
  std::optional<std::string> trouble_;
};

}  // namespace gradus::sources
