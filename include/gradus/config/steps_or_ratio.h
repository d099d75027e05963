#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

namespace gradus {

/// A number of steps, or, below 1, a share of all steps of the run: `logging_steps = 10`,
/// `logging_steps = 0.1`.
///
/// Converts from integers and floating-point numbers without narrowing, also in designated
/// initialisers. Not from bool.
class StepsOrRatio {
 public:
  /// Zero steps.
  constexpr StepsOrRatio() = default;

  /// A number of steps.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  constexpr StepsOrRatio(T steps)
      : value_(static_cast<double>(steps)), whole_(true) {}  // NOLINT: meant to convert

  /// A share when `value` is below 1, otherwise a number of steps.
  template <std::floating_point T>
  constexpr StepsOrRatio(T value)
      : value_(static_cast<double>(value)), whole_(false) {}  // NOLINT: meant to convert

  /// The number as given.
  constexpr double value() const { return value_; }

  /// Whether the value is below 1 and therefore a share of all steps. 0 counts as a share, which
  /// makes no difference.
  constexpr bool is_ratio() const { return value_ < 1; }

  /// Whether it was given as an integer.
  ///
  /// This decides only how it is written: 2 or 2.0.
  constexpr bool is_whole() const { return whole_; }

  /// The number of steps in a run of `total` steps. As in transformers a share is rounded up.
  int64_t steps(int64_t total) const {
    return is_ratio() ? static_cast<int64_t>(std::ceil(static_cast<double>(total) * value_))
                      : static_cast<int64_t>(value_);
  }

  /// Whether both have the same value; 2 and 2.0 are equal.
  friend constexpr bool operator==(const StepsOrRatio& a, const StepsOrRatio& b) {
    return a.value_ == b.value_;
  }

 private:
  double value_ = 0;
  bool whole_ = true;
};

}  // namespace gradus
