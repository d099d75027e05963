#include "runs/canvas.h"

#include <gradus/core/error.h>
#include <png.h>

#include <algorithm>
#include <cmath>

#include "runs/stroke_font.h"

namespace gradus::runs {

Canvas::Canvas(int width, int height, Colour background)
    : width_(width),
      height_(height),
      clip_right_(width),
      clip_bottom_(height),
      pixels_(size_t(width) * size_t(height) * 3) {
  fill(0, 0, width, height, background);
}

void Canvas::clip(int x, int y, int width, int height) {
  clip_left_ = std::max(x, 0);
  clip_top_ = std::max(y, 0);
  clip_right_ = std::min(x + width, width_);
  clip_bottom_ = std::min(y + height, height_);
}

void Canvas::blend(int x, int y, Colour colour, double alpha) {
  if (x < clip_left_ || y < clip_top_ || x >= clip_right_ || y >= clip_bottom_) return;
  auto* pixel = &pixels_[(size_t(y) * size_t(width_) + size_t(x)) * 3];
  const uint8_t parts[] = {colour.red, colour.green, colour.blue};
  for (int i = 0; i < 3; ++i)
    pixel[i] = uint8_t(std::lround(pixel[i] + (parts[i] - pixel[i]) * alpha));
}

void Canvas::fill(int x, int y, int width, int height, Colour colour) {
  for (int row = y; row < y + height; ++row)
    for (int column = x; column < x + width; ++column) blend(column, row, colour, 1);
}

void Canvas::disc(Spot middle, double radius, Colour colour) {
  if (!std::isfinite(middle.x) || !std::isfinite(middle.y)) return;
  for (int y = int(middle.y - radius) - 1; y <= int(middle.y + radius) + 1; ++y)
    for (int x = int(middle.x - radius) - 1; x <= int(middle.x + radius) + 1; ++x) {
      const double far = std::hypot(x + 0.5 - middle.x, y + 0.5 - middle.y);
      blend(x, y, colour, std::clamp(radius + 0.5 - far, 0.0, 1.0));
    }
}

/// How much of each pixel a piece of a line covers: by the distance of the pixel's middle from it.
void Canvas::stroke(Spot from, Spot to, double thick, std::vector<float>& cover, int left, int top,
                    int across, int down) const {
  const double reach = thick / 2 + 1;
  const int x0 = std::max(int(std::floor(std::min(from.x, to.x) - reach)), left);
  const int x1 = std::min(int(std::ceil(std::max(from.x, to.x) + reach)), left + across - 1);
  const double dx = to.x - from.x, dy = to.y - from.y, length = dx * dx + dy * dy;
  for (int x = x0; x <= x1; ++x) {
    // Only the rows that the line passes in this column, not the whole box around it.
    double low = std::min(from.y, to.y), high = std::max(from.y, to.y);
    if (std::abs(dx) > 1e-9) {
      const double slope = dy / dx;
      const double at_left = from.y + (x - reach - from.x) * slope;
      const double at_right = from.y + (x + 1 + reach - from.x) * slope;
      low = std::max(low, std::min(at_left, at_right));
      high = std::min(high, std::max(at_left, at_right));
    }
    const int y0 = std::max(int(std::floor(low - reach)), top);
    const int y1 = std::min(int(std::ceil(high + reach)), top + down - 1);
    for (int y = y0; y <= y1; ++y) {
      const double px = x + 0.5 - from.x, py = y + 0.5 - from.y;
      const double share = length > 0 ? std::clamp((px * dx + py * dy) / length, 0.0, 1.0) : 0;
      const double far = std::hypot(px - share * dx, py - share * dy);
      auto& here = cover[size_t(y - top) * size_t(across) + size_t(x - left)];
      here = std::max(here, float(std::clamp(thick / 2 + 0.5 - far, 0.0, 1.0)));
    }
  }
}

/// Paints lines as one: where they cross or touch, nothing becomes darker.
void Canvas::paint(const std::vector<std::vector<Spot>>& lines, Colour colour, double thick,
                   double alpha) {
  double least_x = 1e9, least_y = 1e9, most_x = -1e9, most_y = -1e9;
  for (const auto& spots : lines)
    for (const auto& spot : spots) {
      least_x = std::min(least_x, spot.x);
      most_x = std::max(most_x, spot.x);
      least_y = std::min(least_y, spot.y);
      most_y = std::max(most_y, spot.y);
    }
  const auto clamped = [](double value) { return int(std::clamp(value, -100.0, 20000.0)); };
  const int left = std::max(clamped(std::floor(least_x - thick - 1)), clip_left_);
  const int top = std::max(clamped(std::floor(least_y - thick - 1)), clip_top_);
  const int across = std::min(clamped(std::ceil(most_x + thick + 1)), clip_right_) - left;
  const int down = std::min(clamped(std::ceil(most_y + thick + 1)), clip_bottom_) - top;
  if (across <= 0 || down <= 0) return;
  std::vector<float> cover(size_t(across) * size_t(down));
  for (const auto& spots : lines)
    for (size_t i = 0; i < spots.size(); ++i)
      stroke(spots[i > 0 ? i - 1 : 0], spots[i], thick, cover, left, top, across, down);
  for (int y = 0; y < down; ++y)
    for (int x = 0; x < across; ++x)
      if (const float here = cover[size_t(y) * size_t(across) + size_t(x)]; here > 0)
        blend(left + x, top + y, colour, double(here) * alpha);
}

void Canvas::line(const std::vector<Spot>& spots, Colour colour, double thick, double alpha) {
  if (!spots.empty()) paint({spots}, colour, thick, alpha);
}

void Canvas::text(Spot at, std::string_view words, double size, Colour colour) {
  double x = at.x;
  const double unit = size / kLetterHeight;
  for (const char letter : words) {
    std::vector<std::vector<Spot>> lines;
    for (const auto& stroke : letter_strokes(letter)) {
      auto& line = lines.emplace_back();
      for (const auto& spot : stroke) line.push_back({x + spot.x * unit, at.y - spot.y * unit});
    }
    if (!lines.empty()) paint(lines, colour, std::max(size / 8, 1.1), 1);
    x += letter_width(letter) * unit;
  }
}

double Canvas::text_width(std::string_view words, double size) {
  double width = 0;
  for (const char letter : words) width += letter_width(letter);
  return width * size / kLetterHeight;
}

std::string Canvas::png() const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = png_uint_32(width_);
  image.height = png_uint_32(height_);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  const auto write = [&](void* into) {
    return png_image_write_to_memory(&image, into, &size, 0, pixels_.data(), 0, nullptr) != 0;
  };
  std::string bytes;
  bool good = write(nullptr);
  if (good) {
    bytes.resize(size);
    good = write(bytes.data());
  }
  if (!good)
    throw Error("G-IMG-9", ErrorKind::internal,
                std::string("libpng could not write a picture: ") + image.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace gradus::runs
