#include "runs/curve_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runs/canvas.h"

namespace gradus::runs {
namespace {

constexpr Colour kWhite{255, 255, 255}, kInk{40, 46, 54}, kFaint{110, 118, 130},
    kGrid{228, 232, 237};
constexpr std::array<Colour, 8> kCurveColours = {
    Colour{37, 99, 201},  Colour{209, 87, 31},  Colour{26, 143, 90},  Colour{138, 58, 185},
    Colour{184, 134, 11}, Colour{194, 47, 107}, Colour{15, 139, 141}, Colour{107, 91, 62}};
constexpr int kMargin = 14, kLeft = 62, kTop = 34, kBottom = 40, kRight = 12;
constexpr double kSmall = 9, kLarge = 11;

struct Ends {
  double least = INFINITY, most = -INFINITY;
  void take(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

bool has_points(const PictureChart& chart) {
  return std::any_of(chart.curves.begin(), chart.curves.end(), [](const auto& each) {
    return std::any_of(each.curve.y.begin(), each.curve.y.end(),
                       [](double y) { return std::isfinite(y); });
  });
}

/// Text that fits into `room` pixels.
std::string fitting(std::string text, double size, double room) {
  constexpr size_t kLongest = 500;  // longer ones do not fit
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "..";
  while (text.size() > 3 && Canvas::text_width(text, size) > room)
    text = text.substr(0, text.size() - (text.ends_with("..") ? 3 : 1)) + "..";
  return text;
}

/// Near enough to zero that the distance of two values is a number, too.
double within_reach(double value) {
  constexpr double kFar = std::numeric_limits<double>::max() / 4;
  return std::clamp(value, -kFar, kFar);
}

void draw_chart(Canvas& canvas, const PictureChart& chart, int x, int y,
                const PictureOptions& options) {
  const int left = x + kLeft, top = y + kTop;
  const int across = options.chart_width - kLeft - kRight;
  const int down = options.chart_height - kTop - kBottom;
  Ends steps, values;
  for (const auto& each : chart.curves)
    for (size_t i = 0; i < each.curve.x.size(); ++i) {
      if (!std::isfinite(each.curve.y[i])) continue;
      steps.take(each.curve.x[i]);
      values.take(within_reach(each.curve.y[i]));
    }
  if (steps.least == steps.most)
    steps.most = std::nextafter(steps.most + 1, std::numeric_limits<double>::infinity());
  const double room = values.most > values.least ? (values.most - values.least) * 0.05
                                                 : std::max(std::abs(values.most) * 0.1, 1e-9);
  values = {values.least - room, values.most + room};
  const auto place = [&](double step, double value) {
    const double height = within_reach(value) - values.least;
    return Spot{left + (step - steps.least) / (steps.most - steps.least) * across,
                top + (1 - height / (values.most - values.least)) * down};
  };

  canvas.text({double(left), double(y + 20)}, fitting(chart.title, kLarge, across), kLarge, kInk);
  for (const double tick : axis_ticks(values.least, values.most, 5)) {
    const double at = std::round(place(steps.least, tick).y) + 0.5;
    canvas.line({{double(left), at}, {double(left + across), at}}, kGrid, 1);
    const auto text = tick_text(tick);
    canvas.text({left - 8 - Canvas::text_width(text, kSmall), at + kSmall / 2}, text, kSmall,
                kFaint);
  }
  for (const double tick : axis_ticks(steps.least, steps.most, 6)) {
    const double at = std::round(place(tick, values.least).x) + 0.5;
    canvas.line({{at, double(top)}, {at, double(top + down)}}, kGrid, 1);
    const auto text = tick_text(tick);
    canvas.text({at - Canvas::text_width(text, kSmall) / 2, top + down + 16.0}, text, kSmall,
                kFaint);
  }
  canvas.text({left + across - Canvas::text_width(options.axis, kSmall), top + down + 33.0},
              options.axis, kSmall, kFaint);

  canvas.clip(left, top, across, down);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const auto colour = kCurveColours[i % kCurveColours.size()];
    const auto& curve = chart.curves[i].curve;
    std::vector<Spot> spots;
    const auto draw = [&] {
      canvas.line(spots, colour, 1.8);
      if (spots.size() == 1 || curve.x.size() <= 30)
        for (const auto& spot : spots) canvas.disc(spot, 2.6, colour);
      spots.clear();
    };
    for (size_t at = 0; at < curve.x.size(); ++at) {
      if (std::isfinite(curve.y[at]))
        spots.push_back(place(curve.x[at], curve.y[at]));
      else
        draw();  // a gap
    }
    draw();
  }
  canvas.unclip();
}

void draw_legend(Canvas& canvas, const std::vector<std::string>& labels, int y) {
  double x = kMargin + kLeft;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = fitting(labels[i], kSmall, 240);
    const double width = Canvas::text_width(label, kSmall) + 40;
    if (x + width > canvas.width()) break;
    canvas.line({{x, y - 4.0}, {x + 16, y - 4.0}}, kCurveColours[i % kCurveColours.size()], 3);
    canvas.text({x + 22, double(y)}, label, kSmall, kInk);
    x += width;
  }
}

}  // namespace

std::vector<double> axis_ticks(double least, double most, int count) {
  if (!(most > least) || count < 1) return {};
  const double rough = (most - least) / count, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= power * factor) {
      step = power * factor;
      break;
    }
  std::vector<double> ticks;
  for (double at = std::ceil(least / step); at * step <= most && ticks.size() < 50; ++at)
    ticks.push_back(at == 0 ? 0 : at * step);
  return ticks;
}

std::string curve_picture(std::vector<PictureChart> charts, const PictureOptions& options) {
  std::erase_if(charts, [](const auto& chart) { return !has_points(chart); });
  if (charts.empty()) return "";
  std::vector<std::string> labels;
  for (const auto& chart : charts)
    if (chart.curves.size() > labels.size()) {
      labels.clear();
      for (const auto& each : chart.curves) labels.push_back(each.label);
    }
  const int legend = labels.size() > 1 ? 26 : 0;
  const int columns = std::min<int>(std::max(options.columns, 1), int(charts.size()));
  const int rows = (int(charts.size()) + columns - 1) / columns;
  Canvas canvas(2 * kMargin + columns * options.chart_width,
                2 * kMargin + rows * options.chart_height + legend, kWhite);
  if (legend > 0) draw_legend(canvas, labels, kMargin + 14);
  for (size_t i = 0; i < charts.size(); ++i)
    draw_chart(canvas, charts[i], kMargin + int(i) % columns * options.chart_width,
               kMargin + legend + int(i) / columns * options.chart_height, options);
  return canvas.png();
}

}  // namespace gradus::runs
