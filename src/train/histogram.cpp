#include "train/histogram.h"

#include <algorithm>

namespace gradus {
namespace {

std::vector<double> bucket_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  std::vector<double> all;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
  all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

}  // namespace

std::optional<Histogram> histogram_of(const torch::Tensor& tensor) {
  static const auto kLimits = bucket_limits();
  const torch::NoGradGuard no_grad;
  auto values = tensor.detach().flatten().to(torch::kDouble);
  values = values.masked_select(values.isfinite());
  if (values.numel() == 0) return std::nullopt;
  const auto limits = torch::tensor(kLimits, torch::dtype(torch::kDouble).device(values.device()));
  // The place of a value is that of the first limit above it; those beyond the last do not count.
  const auto places = torch::searchsorted(limits, values, /*out_int32=*/false, /*right=*/true);
  const auto counts =
      torch::bincount(places, /*weights=*/{}, int64_t(kLimits.size()) + 1).to(torch::kCPU);
  const auto numbers =
      torch::stack({values.min(), values.max(), values.sum(), values.square().sum()})
          .to(torch::kCPU);
  const auto* number = numbers.const_data_ptr<double>();
  Histogram histogram{
      .min = number[0], .max = number[1], .sum = number[2], .sum_squares = number[3]};
  const auto* all = counts.const_data_ptr<int64_t>();
  size_t first = 1, last = kLimits.size() - 1;  // place i is between limits i - 1 and i
  while (first < last && all[first] == 0) ++first;
  while (last > first && all[last] == 0) --last;
  histogram.limits.push_back(kLimits[first - 1]);
  histogram.counts.push_back(0);
  for (size_t place = first; place <= last; ++place) {
    histogram.limits.push_back(kLimits[place]);
    histogram.counts.push_back(double(all[place]));
  }
  return histogram;
}

}  // namespace gradus
