#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradus::functional {

/// A number for every step, most often the learning rate. Step 0 is the first.
///
/// A schedule is a value without state: the same step always gives the same number.
class Schedule {
 public:
  /// No schedule.
  Schedule() = default;
  /// A fixed number, as optax takes a float in place of a schedule.
  Schedule(double value);
  /// Any function of the step. `length`: after how many steps the next schedule of a `join` takes
  /// over.
  template <class F>
    requires(!std::is_same_v<F, Schedule> && std::is_invocable_r_v<double, F&, int64_t>)
  Schedule(F function, std::optional<int64_t> length = std::nullopt)
      : function_(std::move(function)), length_(length) {}

  /// Whether there is a schedule.
  explicit operator bool() const { return function_ != nullptr; }
  /// The number for a step. Throws `Error` G-FN-5 when there is no schedule.
  double operator()(int64_t step) const;
  /// After how many steps the next schedule of a `join` takes over, when that is known.
  std::optional<int64_t> length() const { return length_; }
  /// The number, when the schedule is a fixed number.
  std::optional<double> fixed() const { return fixed_; }

 private:
  std::function<double(int64_t)> function_;
  std::optional<int64_t> length_;
  std::optional<double> fixed_;
};

/// `optax.constant_schedule`: the same number for every step.
Schedule constant(double value);
/// `optax.linear_schedule`: from `init` to `end` in `steps` steps, then `end`. With no steps it
/// stays at `init`, as in optax.
Schedule linear(double init, double end, int64_t steps);
/// `optax.join_schedules`: one schedule after the other, each from its own step 0. Throws G-FN-5
/// when one before the last has no length.
Schedule join(std::vector<Schedule> schedules);
/// The same with the steps at which the second, third … schedule begins.
Schedule join(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);
/// The same with the schedules as arguments: `join(warmup, decay)`.
template <std::same_as<Schedule>... More>
Schedule join(Schedule first, Schedule second, More... more) {
  return join(std::vector<Schedule>{std::move(first), std::move(second), std::move(more)...});
}

}  // namespace gradus::functional
