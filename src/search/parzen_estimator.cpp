#include "search/parzen_estimator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "search/truncated_normal.h"

namespace gradus::search {
namespace {

// 1 for the newest 25, and a line that falls towards the oldest.
std::vector<double> observation_weights(size_t count) {
  constexpr size_t kFull = 25;
  std::vector<double> weights(count, 1.0);
  if (count < kFull) return weights;
  const size_t ramp = count - kFull;
  for (size_t i = 0; i < ramp; ++i) {
    const double first = 1.0 / double(count);
    weights[i] = ramp == 1 ? first : first + (1.0 - first) * double(i) / double(ramp - 1);
  }
  return weights;
}

}  // namespace

ParzenEstimator::ParzenEstimator(const std::map<std::string, Distribution>& space,
                                 const std::vector<Point>& observations) {
  weights_ = observation_weights(observations.size());
  weights_.push_back(1.0);  // of the kernel over the whole space
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (auto& weight : weights_) weight /= sum;
  size_t at = 0;
  for (const auto& [name, distribution] : space) {
    std::vector<double> observed;
    for (const auto& point : observations) observed.push_back(point[at]);
    axes_.push_back(distribution.kind() == Distribution::Kind::categorical
                        ? category_axis(distribution, observed)
                        : number_axis(distribution, std::move(observed)));
    ++at;
  }
}

ParzenEstimator::Axis ParzenEstimator::category_axis(const Distribution& distribution,
                                                     const std::vector<double>& observed) {
  Axis axis{.distribution = distribution};
  const size_t choices = distribution.choices().size();
  const double prior = 1.0 / double(observed.size() + 1);
  for (size_t kernel = 0; kernel <= observed.size(); ++kernel) {
    std::vector<double> weights(choices, observed.empty() ? 1.0 : prior);
    if (kernel < observed.size()) weights[size_t(observed[kernel])] += 1;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (auto& weight : weights) weight /= sum;
    axis.weights.push_back(std::move(weights));
  }
  return axis;
}

ParzenEstimator::Axis ParzenEstimator::number_axis(const Distribution& distribution,
                                                   std::vector<double> observed) {
  Axis axis{.distribution = distribution, .low = distribution.low(), .high = distribution.high()};
  const double half = distribution.step().value_or(0) / 2;
  axis.low -= half;
  axis.high += half;
  if (distribution.log()) {
    axis.low = std::log(axis.low);
    axis.high = std::log(axis.high);
    for (auto& value : observed) value = std::log(value);
  }
  const size_t count = observed.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return observed[a] < observed[b]; });
  // The width is the distance to the farther neighbour; at the ends the bound is one, unless there
  // is a neighbour on the other side.
  axis.widths.resize(count);
  const double range = axis.high - axis.low;
  const double least = range / std::min(100.0, double(count) + 2.0);
  for (size_t i = 0; i < count; ++i) {
    const double here = observed[order[i]];
    const double below = here - (i == 0 ? axis.low : observed[order[i - 1]]);
    const double above = (i + 1 == count ? axis.high : observed[order[i + 1]]) - here;
    double width = std::max(below, above);
    if (count >= 2 && i == 0) width = above;
    if (count >= 2 && i + 1 == count) width = below;
    axis.widths[order[i]] = std::clamp(width, least, range);
  }
  axis.centers = std::move(observed);
  axis.centers.push_back(0.5 * (axis.low + axis.high));
  axis.widths.push_back(range);
  return axis;
}

double ParzenEstimator::to_number(const Axis& axis, double drawn) {
  const auto& distribution = axis.distribution;
  const double number = distribution.log() ? std::exp(drawn) : drawn;
  if (!distribution.step()) return number;
  const double step = *distribution.step(), low = distribution.low();
  // std::nearbyint rounds halves to even, as numpy does.
  return std::clamp(low + std::nearbyint((number - low) / step) * step, low, distribution.high());
}

std::vector<ParzenEstimator::Point> ParzenEstimator::sample(CountedRandom& random,
                                                            int64_t count) const {
  // The order of draws is Optuna's: kernels, then categories, then numbers.
  std::vector<double> sums(weights_.size());
  std::partial_sum(weights_.begin(), weights_.end(), sums.begin());
  for (auto& sum : sums) sum /= sums.back();
  std::vector<size_t> kernels(static_cast<size_t>(count));
  for (auto& kernel : kernels)
    kernel =
        std::min(size_t(std::upper_bound(sums.begin(), sums.end(), random.rand()) - sums.begin()),
                 weights_.size() - 1);
  std::vector<Point> points(kernels.size(), Point(axes_.size()));
  for (const bool categories : {true, false})
    for (size_t a = 0; a < axes_.size(); ++a) {
      const auto& axis = axes_[a];
      if (axis.weights.empty() == categories) continue;
      for (size_t i = 0; i < points.size(); ++i) {
        const double drawn = random.rand();
        const size_t kernel = kernels[i];
        if (categories) {
          const auto& weights = axis.weights[kernel];
          size_t category = 0;
          for (double sum = weights[0]; category + 1 < weights.size() && sum < drawn;)
            sum += weights[++category];
          points[i][a] = double(category);
        } else {
          const double center = axis.centers[kernel], width = axis.widths[kernel];
          points[i][a] = to_number(axis, truncated_quantile(drawn, (axis.low - center) / width,
                                                            (axis.high - center) / width) *
                                                 width +
                                             center);
        }
      }
    }
  return points;
}

double ParzenEstimator::log_density(const Axis& axis, size_t kernel, double number) {
  if (!axis.weights.empty()) return std::log(axis.weights[kernel][size_t(number)]);
  const double center = axis.centers[kernel], width = axis.widths[kernel];
  const double all = log_normal_mass((axis.low - center) / width, (axis.high - center) / width);
  const bool log = axis.distribution.log();
  if (!axis.distribution.step()) {
    const double at = log ? std::log(number) : number;
    if (at < axis.low || at > axis.high) return -HUGE_VAL;
    const double z = (at - center) / width;
    return log_normal_density(z) - all - std::log(width);
  }
  const double half = *axis.distribution.step() / 2;
  const double left = log ? std::log(number - half) : number - half;
  const double right = log ? std::log(number + half) : number + half;
  return log_normal_mass((left - center) / width, (right - center) / width) - all;
}

double ParzenEstimator::log_density(const Point& point) const {
  std::vector<double> terms(weights_.size());
  for (size_t kernel = 0; kernel < terms.size(); ++kernel) {
    terms[kernel] = std::log(weights_[kernel]);
    for (size_t a = 0; a < axes_.size(); ++a)
      terms[kernel] += log_density(axes_[a], kernel, point[a]);
  }
  double most = *std::max_element(terms.begin(), terms.end());
  if (std::isinf(most)) most = 0;
  double sum = 0;
  for (const double term : terms) sum += std::exp(term - most);
  return std::log(sum) + most;
}

}  // namespace gradus::search
