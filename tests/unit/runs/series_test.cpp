#include "runs/series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace gradus::runs {
namespace {

Series walk(int64_t count, uint32_t seed = 7) {
  std::mt19937 random(seed);
  std::normal_distribution<double> step;
  Series series;
  double value = 0;
  for (int64_t i = 0; i < count; ++i) series.add(i * 3, value += step(random), 1000.0 + double(i));
  return series;
}

TEST(Series, GivesAllPointsOfAShortCurve) {
  const auto series = walk(100);
  const auto curve = series.curve({.points = 100});
  ASSERT_EQ(curve.x.size(), 100U);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(curve.x[i], double(i * 3));
    EXPECT_EQ(curve.y[i], series.value(i));
  }
}

// Every even part of a long curve is there with its smallest and its largest value.
TEST(Series, KeepsEverySpikeOfALongCurve) {
  for (const int64_t count : {1000, 4097, 65536, 300001}) {
    auto series = walk(count);
    series.add(count * 3, 1e9, 0);  // a spike at the end …
    Series spiked;
    for (size_t i = 0; i < series.size(); ++i)  // … and one in the middle
      spiked.add(series.step(i), i == size_t(count / 2) ? -1e9 : series.value(i), 0);
    const auto curve = spiked.curve({.points = 200});
    EXPECT_LE(curve.x.size(), 200U);
    EXPECT_GE(curve.x.size(), 150U);
    EXPECT_EQ(*std::min_element(curve.y.begin(), curve.y.end()), -1e9);
    EXPECT_EQ(*std::max_element(curve.y.begin(), curve.y.end()), 1e9);
    EXPECT_TRUE(std::is_sorted(curve.x.begin(), curve.x.end()));
    EXPECT_EQ(curve.x.front(), 0);
    EXPECT_EQ(curve.x.back(), double(count * 3));
  }
}

// The summed-up blocks give what a look at every point gives, for any part and after cuts.
TEST(Series, AgreesWithALookAtEveryPoint) {
  std::mt19937 random(3);
  auto series = walk(20000);
  for (const int64_t cut : {60000, 31234, 1000, 191, 2, -5}) {
    series.drop_after(cut);
    for (int64_t i = 0; i < 700; ++i) series.add(cut + 1 + i, double(random() % 1000), double(i));
    std::vector<double> x, y;
    for (size_t i = 0; i < series.size(); ++i) {
      x.push_back(double(series.step(i)));
      y.push_back(series.value(i));
    }
    for (const size_t points : {10, 64, 333}) {
      const auto found = series.curve({.points = points});
      const auto expected = thinned(x, y, points);
      EXPECT_EQ(found.x, expected.x) << cut << " " << points;
      EXPECT_EQ(found.y, expected.y) << cut << " " << points;
    }
  }
}

TEST(Series, GivesAPartWithAPointOnEitherSide) {
  const auto series = walk(1000);
  const auto curve = series.curve({.from = 301, .to = 599});
  EXPECT_EQ(curve.x.front(), 300);
  EXPECT_EQ(curve.x.back(), 600);
  EXPECT_TRUE(series.curve({.from = 1e9, .to = 2e9}).x.size() <= 1);
}

TEST(Series, TakesStepsThatAreLoggedAgain) {
  Series series;
  for (int64_t step = 1; step <= 10; ++step) series.add(step, double(step), 0);
  series.add(5, 50, 0);
  ASSERT_EQ(series.size(), 5U);
  EXPECT_EQ(series.last(), 50);
  series.add(5, 51, 0);
  EXPECT_EQ(series.size(), 5U);
  EXPECT_EQ(series.last(), 51);
}

TEST(Series, PassesOverNanUnlessThereIsNothingElse) {
  Series series;
  for (int64_t i = 0; i < 1000; ++i) series.add(i, i >= 400 && i < 600 ? NAN : double(i % 7), 0);
  const auto curve = series.curve({.points = 20});
  EXPECT_EQ(*std::max_element(curve.y.begin(), curve.y.begin() + 5), 6);
  EXPECT_TRUE(std::any_of(curve.y.begin(), curve.y.end(), [](double y) { return std::isnan(y); }));
}

// TensorBoard's formula, computed by hand for three points.
TEST(Series, SmoothsAsTensorBoardDoes) {
  Series series;
  series.add(0, 1, 0);
  series.add(1, 3, 0);
  series.add(2, 2, 0);
  const auto curve = series.curve({.smoothing = 0.5});
  ASSERT_EQ(curve.y.size(), 3U);
  EXPECT_DOUBLE_EQ(curve.y[0], 1);
  EXPECT_DOUBLE_EQ(curve.y[1], (0.25 * 1 + 0.5 * 3) / 0.75);
  EXPECT_DOUBLE_EQ(curve.y[2], (0.125 * 1 + 0.25 * 3 + 0.5 * 2) / 0.875);
}

TEST(Series, HasThreeAxes) {
  const auto series = walk(10);
  EXPECT_EQ(series.curve({.axis = Axis::step}).x.back(), 27);
  EXPECT_EQ(series.curve({.axis = Axis::elapsed}, 1000).x.back(), 9);
  EXPECT_EQ(series.curve({.axis = Axis::clock}, 1000).x.back(), 1009);
}

}  // namespace
}  // namespace gradus::runs
