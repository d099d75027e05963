#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::cli {

/// How a cell of a `TextGrid` looks.
enum class Style : unsigned char { plain, bold, dim, good, bad, warning, curve, accent };

/// A page of characters, drawn piece by piece and then shown as a whole.
///
/// What is outside of the page is cut off. Characters that take two columns take two cells.
class TextGrid {
 public:
  TextGrid(size_t width, size_t height);

  size_t width() const { return width_; }
  size_t height() const { return height_; }

  /// Writes UTF-8 text from (`x`, `y`) to the right, over at most `room` columns; returns how many
  /// it took. Control characters become "?".
  size_t put(size_t x, size_t y, std::string_view text, Style style = Style::plain,
             size_t room = size_t(-1));
  /// The same so that it ends before column `end`.
  void put_right(size_t end, size_t y, std::string_view text, Style style = Style::plain);
  /// A horizontal line.
  void rule(size_t x, size_t y, size_t width, Style style = Style::dim);

  /// A line for a terminal, with its colours.
  std::string coloured_line(size_t y) const;
  /// A line as plain text, without blanks at its end.
  std::string plain_line(size_t y) const;

 private:
  struct Cell {
    std::string text = " ";  // empty: the second half of the one before
    Style style = Style::plain;
  };

  size_t width_, height_;
  std::vector<Cell> cells_;
};

}  // namespace gradus::cli
