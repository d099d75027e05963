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
class Schedule {
 public:
  Schedule() = default;
  /// A fixed number, as one gives optax a float in place of a schedule.
  Schedule(double value);
  /// `length`: after how many steps the next schedule of a `join` takes over.
  template <class F>
    requires(!std::is_same_v<F, Schedule> && std::is_invocable_r_v<double, F&, int64_t>)
  Schedule(F function, std::optional<int64_t> length = std::nullopt)
      : function_(std::move(function)), length_(length) {}

  explicit operator bool() const { return function_ != nullptr; }
  /// Throws `Error` G-FN-5 when this is no schedule.
  double operator()(int64_t step) const;
  std::optional<int64_t> length() const { return length_; }
  /// The number, when this is a fixed one.
  std::optional<double> fixed() const { return fixed_; }

 private:
  std::function<double(int64_t)> function_;
  std::optional<int64_t> length_;
  std::optional<double> fixed_;
};

/// `optax.constant_schedule`.
Schedule constant(double value);
/// `optax.linear_schedule`: from `init` to `end` in `steps` steps, `end` from then on; `init` for
/// ever when there are none.
Schedule linear(double init, double end, int64_t steps);
/// `optax.join_schedules`: each begins at its own step 0 when the one before ends. Throws G-FN-5
/// when one before the last has no length.
Schedule join(std::vector<Schedule> schedules);
/// With the steps at which the second, third … begins.
Schedule join(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);
template <std::same_as<Schedule>... More>
Schedule join(Schedule first, Schedule second, More... more) {
  return join(std::vector<Schedule>{std::move(first), std::move(second), std::move(more)...});
}

}  // namespace gradus::functional
