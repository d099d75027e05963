#include "braille_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gradus::cli {
namespace {

constexpr size_t kLabel = 8;  // columns left of the curve

/// Dots on a grid of cells, two wide and four high each.
class Dots {
 public:
  Dots(size_t columns, size_t rows) : columns_(columns), rows_(rows), cells_(columns * rows, 0) {}

  int width() const { return int(columns_) * 2; }
  int height() const { return int(rows_) * 4; }

  void set(int x, int y) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    constexpr unsigned char kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[size_t(y / 4) * columns_ + size_t(x / 2)] |= kBits[y % 4][x % 2];
  }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max(std::abs(x1 - x0), std::abs(y1 - y0));
    for (int i = 0; i <= steps; ++i)
      set(x0 + (steps > 0 ? (x1 - x0) * i / steps : 0),
          y0 + (steps > 0 ? (y1 - y0) * i / steps : 0));
  }

  void show(TextGrid& grid, size_t x, size_t y) const {
    for (size_t row = 0; row < rows_; ++row)
      for (size_t column = 0; column < columns_; ++column) {
        const auto bits = cells_[row * columns_ + column];
        if (bits == 0) continue;
        // U+2800 and the bits, as UTF-8
        const char text[] = {char(0xe2), char(0xa0 | (bits >> 6)), char(0x80 | (bits & 0x3f)), 0};
        grid.put(x + column, y + row, text, Style::curve);
      }
  }

 private:
  size_t columns_, rows_;
  std::vector<unsigned char> cells_;
};

struct Range {
  double least = INFINITY, most = -INFINITY;

  void take(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool is_empty() const { return least > most; }
  /// Where `value` is, from 0 to 1. By halves, because the whole range may be more than a double.
  double place(double value) const {
    const double half = most / 2 - least / 2;
    return half > 0 ? (value / 2 - least / 2) / half : 0.5;
  }
};

}  // namespace

std::string short_number(double value, size_t room) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  const auto with_digits = [&](int digits) {
    if (size >= 1e15) return fmt::format("{:.{}g}", value, std::min(digits, 3));
    if (size >= 1e9) return fmt::format("{:.{}g}G", value / 1e9, digits);
    if (size >= 1e6) return fmt::format("{:.{}g}M", value / 1e6, digits);
    if (size >= 1e5) return fmt::format("{:.{}g}k", value / 1e3, digits);
    return fmt::format("{:.{}g}", value, digits);
  };
  int digits = 4;
  while (digits > 1 && with_digits(digits).size() > room) --digits;
  return with_digits(digits);
}

void draw_plot(TextGrid& grid, const Area& area, const std::string& name,
               const runs::Series& series, const PlotOptions& options) {
  if (area.height == 0 || area.width == 0 || series.empty()) return;
  const auto newest = short_number(series.last());
  const auto room = area.width > newest.size() + 2 ? area.width - newest.size() - 2 : area.width;
  const auto taken = grid.put(area.x, area.y, name, Style::bold, room);
  grid.put(area.x + taken + 1, area.y, newest, Style::plain,
           area.width > taken + 1 ? area.width - taken - 1 : 0);
  if (area.height < 4 || area.width < kLabel + 6) return;

  const size_t rows = area.height - 2, columns = area.width - kLabel - 1;
  Dots dots(columns, rows);
  auto curve = series.curve({.points = columns * 4, .smoothing = options.smoothing});
  Range x, y;
  for (const double each : curve.x) x.take(each);
  for (const double each : curve.y) y.take(each);
  const bool is_log = options.is_log && y.least > 0;
  if (is_log) {
    for (auto& each : curve.y) each = std::log10(each);
    y = {std::log10(y.least), std::log10(y.most)};
  }
  if (y.is_empty()) {  // nothing but NaN and infinity
    grid.put(area.x + kLabel + 1, area.y + 1 + rows / 2, "no finite value", Style::warning,
             columns);
  } else {
    std::optional<std::pair<int, int>> before;
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (!std::isfinite(curve.y[i])) {
        before.reset();
        continue;
      }
      const int across = int(std::lround(x.place(curve.x[i]) * (dots.width() - 1)));
      const int down = int(std::lround((1 - y.place(curve.y[i])) * (dots.height() - 1)));
      dots.line(before ? before->first : across, before ? before->second : down, across, down);
      before = {across, down};
    }
  }
  for (size_t row = 0; row < rows; ++row)
    grid.put(area.x + kLabel, area.y + 1 + row, "│", Style::dim);
  dots.show(grid, area.x + kLabel + 1, area.y + 1);
  if (!y.is_empty()) {
    const auto shown = [&](double value) {
      return short_number(is_log ? std::pow(10, value) : value, kLabel - 1);
    };
    grid.put_right(area.x + kLabel - 1, area.y + 1, shown(y.most), Style::dim);
    if (y.most > y.least)
      grid.put_right(area.x + kLabel - 1, area.y + rows, shown(y.least), Style::dim);
  }
  const size_t axis = area.y + area.height - 1;
  grid.put(area.x + kLabel, axis, "└", Style::dim);
  grid.rule(area.x + kLabel + 1, axis, columns);
  grid.put(area.x + kLabel + 1, axis, fmt::format("{:.0f} ", x.least), Style::dim);
  grid.put_right(area.x + area.width, axis, fmt::format(" {:.0f}", x.most), Style::dim);
}

}  // namespace gradus::cli
