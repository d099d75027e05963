#pragma once

#include <string>

#include "runs/series.h"
#include "text_grid.h"

namespace gradus::cli {

/// A rectangle of a `TextGrid`.
struct Area {
  size_t x = 0, y = 0, width = 0, height = 0;
};

/// What a curve is drawn with.
struct PlotOptions {
  bool is_log = false;   ///< logarithmic, where all values are above 0
  double smoothing = 0;  ///< see `runs::CurveQuery`
};

/// Draws a metric into `area`: its name and newest value, the curve in dots of braille characters
/// (two by four a cell), the ends of the axes. An area that is too small gets the title alone.
void draw_plot(TextGrid& grid, const Area& area, const std::string& name,
               const runs::Series& series, const PlotOptions& options);

/// A number in few characters: 2.713, 5e-05, 12.3k. It has fewer digits where `room` wants it.
std::string short_number(double value, size_t room = 80);

}  // namespace gradus::cli
