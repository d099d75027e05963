#pragma once

#include <gradus/search/distribution.h>
#include <gradus/search/sampler.h>

namespace gradus::search {

/// A density over some parameters: one kernel around every observation and a wide one over the
/// whole space. A kernel is a product over the parameters of normal distributions that end at the
/// bounds, or of weights of categories. The widths are Optuna's.
class ParzenEstimator {
 public:
  /// A point, or one observation: a number per parameter, in the order of `space`.
  using Point = std::vector<double>;

  /// `observations` are in the order of their trials: older ones count less beyond 25.
  ParzenEstimator(const std::map<std::string, Distribution>& space,
                  const std::vector<Point>& observations);

  /// Draws points.
  std::vector<Point> sample(CountedRandom& random, int64_t count) const;
  /// log of the density at a point.
  double log_density(const Point& point) const;

 private:
  // One parameter of all kernels.
  struct Axis {
    Distribution distribution;
    double low = 0, high = 0;  // bounds, half a step wider; logarithms with log
    std::vector<double> centers = {}, widths = {};  // of a number, per kernel
    std::vector<std::vector<double>> weights = {};  // of the categories, per kernel
  };

  static Axis number_axis(const Distribution& distribution, std::vector<double> observed);
  static Axis category_axis(const Distribution& distribution, const std::vector<double>& observed);
  static double to_number(const Axis& axis, double drawn);
  static double log_density(const Axis& axis, size_t kernel, double number);

  std::vector<double> weights_;  // of the kernels
  std::vector<Axis> axes_;
};

}  // namespace gradus::search
