#include "text_grid.h"

#include <gradus/core/printable.h>

#include "trackers/terminal_text.h"

namespace gradus::cli {
namespace {

/// How many bytes the first character of UTF-8 text has.
size_t character_length(std::string_view text) {
  size_t end = 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return end;
}

const char* colour_of(Style style) {
  switch (style) {
    case Style::bold: return "\x1b[1m";
    case Style::dim: return "\x1b[2m";
    case Style::good: return "\x1b[32m";
    case Style::bad: return "\x1b[31m";
    case Style::warning: return "\x1b[33m";
    case Style::curve: return "\x1b[36m";
    case Style::accent: return "\x1b[34m";
    case Style::plain: break;
  }
  return "";
}

}  // namespace

TextGrid::TextGrid(size_t width, size_t height)
    : width_(width), height_(height), cells_(width * height) {}

size_t TextGrid::put(size_t x, size_t y, std::string_view words, Style style, size_t room) {
  if (y >= height_ || x >= width_) return 0;
  // Names and messages of a run may come from a stranger; what lies beyond the width is not shown.
  constexpr size_t kBytesOfColumn = 16;
  const auto shown = printable(words.substr(0, (width_ - x) * kBytesOfColumn));
  std::string_view text = shown;
  const size_t end = room < width_ - x ? x + room : width_;
  const size_t begin = x;
  while (!text.empty()) {
    const auto length = character_length(text);
    auto character = text.substr(0, length);
    text.remove_prefix(length);
    const bool is_control =
        length == 1 && (static_cast<unsigned char>(character[0]) < 0x20 || character[0] == 0x7f);
    if (is_control) character = "?";
    const size_t columns = display_width(character);
    if (columns == 0) continue;
    if (x + columns > end) break;
    cells_[y * width_ + x] = {std::string(character), style};
    if (columns == 2) cells_[y * width_ + x + 1] = {"", style};
    x += columns;
  }
  return x - begin;
}

void TextGrid::put_right(size_t end, size_t y, std::string_view text, Style style) {
  const auto columns = display_width(text);
  put(columns < end ? end - columns : 0, y, text, style, end);
}

void TextGrid::rule(size_t x, size_t y, size_t width, Style style) {
  for (size_t i = 0; i < width; ++i) put(x + i, y, "─", style);
}

std::string TextGrid::coloured_line(size_t y) const {
  std::string line;
  auto style = Style::plain;
  for (size_t x = 0; x < width_; ++x) {
    const auto& cell = cells_[y * width_ + x];
    if (cell.style != style) {
      if (style != Style::plain) line += "\x1b[0m";
      line += colour_of(cell.style);
      style = cell.style;
    }
    line += cell.text;
  }
  if (style != Style::plain) line += "\x1b[0m";
  return line;
}

std::string TextGrid::plain_line(size_t y) const {
  std::string line;
  for (size_t x = 0; x < width_; ++x) line += cells_[y * width_ + x].text;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace gradus::cli
