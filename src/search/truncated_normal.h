#pragma once

namespace gradus::search {

/// log of the standard normal density at `x`.
double log_normal_density(double x);
/// log of the standard normal distribution function at `x`, also far out on the left.
double log_normal_cdf(double x);
/// log of the probability between `low` and `high` under the standard normal distribution.
double log_normal_mass(double low, double high);
/// The `x` with log_normal_cdf(x) == y, for y < 0.
double inverse_log_normal_cdf(double y);
/// The quantile `q` of a standard normal distribution cut off at `low` and `high`.
double truncated_quantile(double q, double low, double high);

}  // namespace gradus::search
