#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradus::runs {

/// What the horizontal axis of a curve shows.
enum class Axis {
  step,     ///< the global step
  elapsed,  ///< seconds since the run began
  clock     ///< seconds since 1970
};

/// Points of a curve as they are drawn. `y` may hold NaN, which is a gap.
struct Curve {
  std::vector<double> x;
  std::vector<double> y;
};

/// What a drawing asks for.
struct CurveQuery {
  Axis axis = Axis::step;
  /// The part of the axis that is seen; one more point on either side is given, so that the line
  /// runs to the edge.
  double from = -1e300, to = 1e300;
  /// About how many points are wanted at most.
  size_t points = 2000;
  /// Weight of the past in a moving average, from 0 (none) to below 1.
  double smoothing = 0;
};

/// One metric of a run: a value for each step at which it was logged, oldest first.
///
/// Blocks of points are summed up by their smallest and largest value, and blocks of blocks again,
/// so that a drawing of ten million points looks at some thousands of them, and no spike is lost.
/// Thread-safety: none.
class Series {
 public:
  /// Adds a point. A step that is not after the last one takes the place of the points from there
  /// on: a resumed run logs them again. `time` is in seconds since 1970, 0 when nobody knows.
  void add(int64_t step, double value, double time);
  /// Drops the points after `step`.
  void drop_after(int64_t step);

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  int64_t step(size_t index) const { return steps_[index]; }
  double value(size_t index) const { return values_[index]; }
  /// Seconds since 1970; 0 when nobody knows.
  double time(size_t index) const { return times_[index]; }
  double last() const { return values_.back(); }

  /// The points of a part of the curve. Where it has more than `query.points`, the smallest and the
  /// largest value of even parts stand for them, in the order in which they were logged.
  /// `began` is where `Axis::elapsed` begins.
  Curve curve(const CurveQuery& query, double began = 0) const;

 private:
  struct Extremes {
    uint32_t least, most;  // where they are
  };

  double x_of(size_t index, Axis axis, double began) const;
  /// The first point whose x is at least (or, if `after`, more than) `x`.
  size_t first_at(double x, Axis axis, double began) const;
  Extremes extremes(size_t begin, size_t end) const;
  void sum_up(size_t index);

  std::vector<int64_t> steps_;
  std::vector<double> values_;
  std::vector<double> times_;
  /// Level 0 has the extremes of 64 points each, every further level those of 16 below it. The last
  /// block of a level may be unfinished.
  std::vector<std::vector<Extremes>> levels_;
};

/// The points from `begin` to `end` of a curve as at most `points` of them: of each even part the
/// smallest and the largest. NaN is passed over unless a part holds nothing else.
Curve thinned(std::span<const double> x, std::span<const double> y, size_t points);

}  // namespace gradus::runs
