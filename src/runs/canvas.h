#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::runs {

/// Red, green, blue.
struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
};

/// A point of a picture, in pixels from its upper left corner.
struct Spot {
  double x = 0, y = 0;
};

/// A picture that lines and text are drawn on, with smooth edges.
///
/// Text is drawn with a font of strokes of our own, so that no font file is needed. It has the
/// letters of ASCII; others are drawn as a box.
class Canvas {
 public:
  Canvas(int width, int height, Colour background);

  int width() const { return width_; }
  int height() const { return height_; }

  /// A line through all spots, `thick` pixels wide. Only the part inside the clip is drawn.
  void line(const std::vector<Spot>& spots, Colour colour, double thick, double alpha = 1);
  /// A filled disc.
  void disc(Spot middle, double radius, Colour colour);
  /// A filled rectangle.
  void fill(int x, int y, int width, int height, Colour colour);
  /// Text whose letters are `size` pixels high, from `at`, its lower left corner, to the right.
  void text(Spot at, std::string_view words, double size, Colour colour);
  /// How wide that is.
  static double text_width(std::string_view words, double size);
  /// Drawing is cut to this rectangle from now on.
  void clip(int x, int y, int width, int height);
  void unclip() { clip(0, 0, width_, height_); }

  /// The bytes of a PNG file.
  std::string png() const;

 private:
  void blend(int x, int y, Colour colour, double alpha);
  void stroke(Spot from, Spot to, double thick, std::vector<float>& cover, int left, int top,
              int across, int down) const;
  void paint(const std::vector<std::vector<Spot>>& lines, Colour colour, double thick,
             double alpha);

  int width_, height_;
  int clip_left_ = 0, clip_top_ = 0, clip_right_, clip_bottom_;
  std::vector<uint8_t> pixels_;  // three bytes each
};

}  // namespace gradus::runs
