#include <gradus/functional/schedule.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>

#include <algorithm>
#include <memory>

namespace gradus::functional {

Schedule::Schedule(double value) : function_([value](int64_t) { return value; }), fixed_(value) {}

double Schedule::operator()(int64_t step) const {
  if (!function_)
    throw Error("G-FN-5", ErrorKind::usage, "an empty schedule has no value",
                "Make one with linear, constant or join, or give a number.");
  return function_(step);
}

Schedule constant(double value) {
  return Schedule([value](int64_t) { return value; });
}

Schedule linear(double init, double end, int64_t steps) {
  if (steps <= 0) return Schedule([init](int64_t) { return init; }, 0);
  return Schedule(
      [=](int64_t step) {
        return (init - end) * (1 - double(std::clamp<int64_t>(step, 0, steps)) / double(steps)) +
               end;
      },
      steps);
}

Schedule join(std::vector<Schedule> schedules) {
  std::vector<int64_t> boundaries;
  for (size_t i = 0; i + 1 < schedules.size(); ++i) {
    const auto length = schedules[i].length();
    if (!length)
      throw Error("G-FN-5", ErrorKind::usage,
                  fmt::format("schedule {} of {} to be joined has no length, so it is not known "
                              "when the next begins",
                              i + 1, schedules.size()),
                  "Give the steps as well: join({a, b}, {boundary}).");
    boundaries.push_back(*length + (boundaries.empty() ? 0 : boundaries.back()));
  }
  return join(std::move(schedules), std::move(boundaries));
}

Schedule join(std::vector<Schedule> schedules, std::vector<int64_t> boundaries) {
  if (schedules.empty() || boundaries.size() + 1 != schedules.size() ||
      !std::is_sorted(boundaries.begin(), boundaries.end()))
    throw Error("G-FN-5", ErrorKind::usage,
                fmt::format("{} schedules cannot be joined at the steps [{}]", schedules.size(),
                            fmt::join(boundaries, ", ")),
                "Give one rising step for every schedule but the first.");
  std::optional<int64_t> length;
  if (const auto last = schedules.back().length())
    length = *last + (boundaries.empty() ? 0 : boundaries.back());
  const auto parts = std::make_shared<const std::vector<Schedule>>(std::move(schedules));
  return Schedule(
      [parts, boundaries](int64_t step) {
        const auto part = size_t(std::upper_bound(boundaries.begin(), boundaries.end(), step) -
                                 boundaries.begin());
        return (*parts)[part](part == 0 ? step : step - boundaries[part - 1]);
      },
      length);
}

}  // namespace gradus::functional
