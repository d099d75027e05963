#include <gtest/gtest.h>
#include <png.h>

#include <cmath>

#include "runs/canvas.h"
#include "runs/curve_picture.h"
#include "runs/stroke_font.h"

namespace gradus::runs {
namespace {

struct Pixels {
  int width = 0, height = 0;
  std::vector<uint8_t> bytes;

  Colour at(int x, int y) const {
    const auto* pixel = &bytes[(size_t(y) * size_t(width) + size_t(x)) * 3];
    return {pixel[0], pixel[1], pixel[2]};
  }
  /// How many pixels of an area have a colour that is near this one.
  int count(Colour wanted, int left, int top, int right, int bottom) const {
    int found = 0;
    for (int y = top; y < bottom; ++y)
      for (int x = left; x < right; ++x) {
        const auto here = at(x, y);
        found += std::abs(here.red - wanted.red) + std::abs(here.green - wanted.green) +
                     std::abs(here.blue - wanted.blue) <
                 30;
      }
    return found;
  }
};

Pixels decoded(const std::string& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_TRUE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()))
      << image.message;
  image.format = PNG_FORMAT_RGB;
  Pixels pixels{int(image.width), int(image.height), {}};
  pixels.bytes.resize(PNG_IMAGE_SIZE(image));
  EXPECT_TRUE(png_image_finish_read(&image, nullptr, pixels.bytes.data(), 0, nullptr));
  return pixels;
}

TEST(Canvas, DrawsLinesWithSmoothEdges) {
  Canvas canvas(40, 20, {255, 255, 255});
  canvas.line({{5, 10}, {35, 10}}, {0, 0, 0}, 2);
  const auto pixels = decoded(canvas.png());
  EXPECT_EQ(pixels.width, 40);
  EXPECT_EQ(pixels.height, 20);
  EXPECT_LT(pixels.at(20, 10).red, 10);
  EXPECT_LT(pixels.at(20, 9).red, 10);
  EXPECT_GT(pixels.at(20, 12).red, 245);
  EXPECT_GT(pixels.at(1, 10).red, 245);

  Canvas steep(40, 40, {255, 255, 255});
  steep.line({{10, 2}, {13, 38}}, {0, 0, 0}, 1.5);
  const auto drawn = decoded(steep.png());
  for (int y = 4; y < 36; ++y)
    EXPECT_GE(drawn.count({0, 0, 0}, 0, y, 40, y + 1) + int(drawn.at(11, y).red < 200 ||
                                                            drawn.at(12, y).red < 200 ||
                                                            drawn.at(10, y).red < 200),
              1)
        << "a gap in line " << y;
}

TEST(Canvas, CutsAtTheClip) {
  Canvas canvas(40, 20, {255, 255, 255});
  canvas.clip(10, 5, 10, 10);
  canvas.line({{-1e7, 10}, {1e7, 10}}, {0, 0, 0}, 4);
  const auto pixels = decoded(canvas.png());
  EXPECT_LT(pixels.at(15, 10).red, 10);
  EXPECT_EQ(pixels.count({0, 0, 0}, 0, 0, 10, 20), 0);
  EXPECT_EQ(pixels.count({0, 0, 0}, 20, 0, 40, 20), 0);
}

TEST(StrokeFont, HasAllOfAscii) {
  const auto box = letter_strokes('\x01');
  for (char letter = '!'; letter <= '~'; ++letter) {
    const auto strokes = letter_strokes(letter);
    ASSERT_FALSE(strokes.empty()) << letter;
    EXPECT_NE(strokes.size() == box.size() && strokes[0].size() == box[0].size() &&
                  strokes[0][1].x == box[0][1].x && strokes[0][2].y == box[0][2].y,
              true)
        << letter;
    for (const auto& stroke : strokes) {
      EXPECT_GE(stroke.size(), 2U) << letter;
      for (const auto& spot : stroke) {
        EXPECT_GE(spot.y, -2) << letter;
        EXPECT_LE(spot.y, kLetterHeight) << letter;
        EXPECT_LE(spot.x, letter_width(letter)) << letter;
      }
    }
  }
}

TEST(CurvePicture, DrawsEveryCurveInItsColour) {
  Curve falling, rising;
  for (int i = 0; i <= 100; ++i) {
    falling.x.push_back(i);
    falling.y.push_back(100 - i);
    rising.x.push_back(i);
    rising.y.push_back(i);
  }
  const auto bytes = curve_picture({{"loss", {{"a", falling}, {"b", rising}}},
                                    {"empty", {{"a", {}}}},
                                    {"eval_loss", {{"a", falling}}}});
  const auto pixels = decoded(bytes);
  EXPECT_GT(pixels.width, 1000) << "two charts side by side; the empty one is left out";
  EXPECT_LT(pixels.height, 450);
  const int half = pixels.width / 2;
  EXPECT_GT(pixels.count({37, 99, 201}, 0, 60, half, pixels.height), 200);
  EXPECT_GT(pixels.count({209, 87, 31}, 0, 60, half, pixels.height), 200);
  EXPECT_GT(pixels.count({37, 99, 201}, half, 60, pixels.width, pixels.height), 200);
  EXPECT_EQ(pixels.count({209, 87, 31}, half, 60, pixels.width, pixels.height), 0);
}

TEST(CurvePicture, BearsOddValues) {
  EXPECT_EQ(curve_picture({}), "");
  EXPECT_EQ(curve_picture({{"loss", {{"a", {{1, 2}, {NAN, INFINITY}}}}}}), "");
  for (const auto& curve : {Curve{{5}, {1}}, Curve{{1, 2, 3}, {1, NAN, 1e300}},
                            Curve{{1, 2}, {-1e-300, 1e-300}}, Curve{{1, 1}, {2, 2}}})
    EXPECT_FALSE(curve_picture({{"\xff odd name ä", {{"a", curve}}}}).empty());
  // Curves without NaN in between: something of their colour is to be seen.
  for (const auto& curve : {Curve{{1, 2}, {1.7e308, -1.7e308}}, Curve{{1e18}, {3}}, Curve{{1}, {0}},
                            Curve{{1, 2}, {0, 5e-324}}}) {
    const auto pixels = decoded(curve_picture({{"loss", {{"a", curve}}}}));
    EXPECT_GT(pixels.count({37, 99, 201}, 0, 0, pixels.width, pixels.height), 5);
  }
  const std::string longest(size_t(8) << 20, 'x');  // cut letter by letter it would take hours
  EXPECT_FALSE(curve_picture({{longest, {{longest, {{1, 2}, {1, 2}}}}}}).empty());
}

TEST(CurvePicture, ChoosesRoundTicks) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_TRUE(axis_ticks(1, 1, 5).empty());
}

}  // namespace
}  // namespace gradus::runs
