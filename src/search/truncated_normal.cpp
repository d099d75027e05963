#include "search/truncated_normal.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradus::search {
namespace {

const double kHalfLogTwoPi = 0.5 * std::log(2 * M_PI);

double normal_cdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

// log(exp(a) + exp(b))
double log_sum(double a, double b) {
  const double most = std::max(a, b);
  return std::isinf(most) ? most : most + std::log1p(std::exp(std::min(a, b) - most));
}

}  // namespace

double log_normal_density(double x) { return -0.5 * x * x - kHalfLogTwoPi; }

double log_normal_cdf(double x) {
  if (x > 6) return -normal_cdf(-x);
  if (x > -20) return std::log(normal_cdf(x));
  // The asymptotic series of the tail, until its terms no longer count.
  double sum = 1, term = 1;
  for (int i = 1; i < 100; ++i) {
    const double next = -term * double(2 * i - 1) / (x * x);
    if (std::abs(next) >= std::abs(term)) break;
    term = next;
    if (sum + term == sum) break;
    sum += term;
  }
  return -0.5 * x * x - std::log(-x) - kHalfLogTwoPi + std::log(sum);
}

double log_normal_mass(double low, double high) {
  // The left tail is the exact one: a range on the right is mirrored.
  if (low > 0) return log_normal_mass(-high, -low);
  if (high > 0) return std::log1p(-normal_cdf(low) - normal_cdf(-high));
  const double upper = log_normal_cdf(high), lower = log_normal_cdf(low);
  return upper + std::log1p(-std::exp(lower - upper));
}

double inverse_log_normal_cdf(double y) {
  // Near 1 the other tail is the exact one.
  const bool is_mirrored = y > -1e-2;
  const double z = is_mirrored ? std::log(-std::expm1(y)) : y;
  double x = z < -5 ? -std::sqrt(-2 * (z + kHalfLogTwoPi))
                    : -std::sqrt(3.0) / M_PI * std::log(std::expm1(-z));
  for (int i = 0; i < 100; ++i) {  // Newton's method; the start is close
    const double value = log_normal_cdf(x);
    const double step = (value - z) * std::exp(value + 0.5 * x * x + kHalfLogTwoPi);
    x -= step;
    if (!(std::abs(step) >= 1e-12 * std::abs(x))) break;
  }
  return is_mirrored ? -x : x;
}

double truncated_quantile(double q, double low, double high) {
  if (low == high) return std::numeric_limits<double>::quiet_NaN();
  if (q <= 0) return low;
  if (q >= 1) return high;
  const double mass = log_normal_mass(low, high);
  if (low < 0) return inverse_log_normal_cdf(log_sum(log_normal_cdf(low), std::log(q) + mass));
  return -inverse_log_normal_cdf(log_sum(log_normal_cdf(-high), std::log1p(-q) + mass));
}

}  // namespace gradus::search
