#pragma once

#include <torch/types.h>

namespace gradus {

/// The standard deviation of the numbers that are not NaN, over `dim` or over all, with Bessel's
/// correction: NaN for fewer than two of them.
inline torch::Tensor nan_deviation(const torch::Tensor& values,
                                   at::OptionalIntArrayRef dim = std::nullopt) {
  const auto sum_of = [&](const torch::Tensor& each) { return each.sum(dim, /*keepdim=*/true); };
  const auto counted = values.isnan().logical_not();
  const auto count = sum_of(counted.to(values.scalar_type()));
  const auto known = values.nan_to_num(0.0);
  const auto distance = (known - sum_of(known) / count).masked_fill(counted.logical_not(), 0);
  const auto variance = sum_of(distance * distance) / count * (count / (count - 1));
  const auto deviation =
      variance.masked_fill(count.le(1), std::numeric_limits<double>::quiet_NaN()).sqrt();
  return dim ? deviation.squeeze((*dim)[0]) : deviation.squeeze();
}

/// The least number that is not NaN; NaN when there is none. Does not wait for the device.
inline torch::Tensor nan_min(const torch::Tensor& values) {
  const auto infinite = std::numeric_limits<double>::infinity();
  const auto least = values.masked_fill(values.isnan(), infinite).min();
  return least.masked_fill(least.eq(infinite), std::numeric_limits<double>::quiet_NaN());
}

/// The greatest number that is not NaN; NaN when there is none.
inline torch::Tensor nan_max(const torch::Tensor& values) { return -nan_min(-values); }

}  // namespace gradus
