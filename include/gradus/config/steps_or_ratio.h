#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

namespace gradus {

/// A number of steps, or, below 1, a share of all steps of the run: `logging_steps = 10`,
/// `logging_steps = 0.1`.
///
/// Takes integers and floating-point numbers without narrowing, also in designated initialisers.
class StepsOrRatio {
 public:
  constexpr StepsOrRatio() = default;

  template <std::integral T>
    requires(!std::same_as<T, bool>)
  constexpr StepsOrRatio(T steps)
      : value_(static_cast<double>(steps)), whole_(true) {}  // NOLINT: meant to convert

  template <std::floating_point T>
  constexpr StepsOrRatio(T value)
      : value_(static_cast<double>(value)), whole_(false) {}  // NOLINT: meant to convert

  /// The number as given.
  constexpr double value() const { return value_; }

  /// Below 1: a share of all steps. 0 counts as one (a share of nothing).
  constexpr bool is_ratio() const { return value_ < 1; }

  /// Given as an integer; decides only how it is written.
  constexpr bool is_whole() const { return whole_; }

  /// The count in a run of `total` steps: shares are rounded up, as in transformers.
  int64_t steps(int64_t total) const {
    return is_ratio() ? static_cast<int64_t>(std::ceil(static_cast<double>(total) * value_))
                      : static_cast<int64_t>(value_);
  }

  friend constexpr bool operator==(const StepsOrRatio& a, const StepsOrRatio& b) {
    return a.value_ == b.value_;
  }

 private:
  double value_ = 0;
  bool whole_ = true;
};

}  // namespace gradus
