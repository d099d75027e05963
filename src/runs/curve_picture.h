#pragma once

#include <string>
#include <vector>

#include "runs/series.h"

namespace gradus::runs {

/// One curve of a chart. `label` names it in the legend.
struct PictureCurve {
  std::string label;
  Curve curve;
};

/// One chart of a picture.
struct PictureChart {
  std::string title;  ///< the metric
  std::vector<PictureCurve> curves;
};

/// How a picture of curves looks.
struct PictureOptions {
  int chart_width = 560;
  int chart_height = 340;
  int columns = 2;            ///< charts in a row, at most
  std::string axis = "step";  ///< what is written below the charts
};

/// Charts as a PNG picture: its bytes. A chart whose curves have no finite point is left out; empty
/// when none is left. Curves have the same colour in all charts, and a legend tells them apart
/// where a chart has several.
std::string curve_picture(std::vector<PictureChart> charts, const PictureOptions& options = {});

/// Round numbers for an axis from `least` to `most`: about `count` of them.
std::vector<double> axis_ticks(double least, double most, int count);

}  // namespace gradus::runs
