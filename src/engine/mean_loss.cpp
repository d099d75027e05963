#include "engine/mean_loss.h"

#include <array>

namespace gradus {
namespace {

// numpy adds up to this many numbers in one go, eight sums side by side; more are halved.
constexpr int64_t kBlock = 128;
constexpr int64_t kLanes = 8;

// numpy's sum of `count` numbers of type T, which `next` gives one after the other.
template <class T, class Next>
T pairwise_sum(int64_t count, const Next& next) {
  if (count > kBlock) {
    const int64_t half = count / 2 / kLanes * kLanes;
    const T left = pairwise_sum<T>(half, next);
    return left + pairwise_sum<T>(count - half, next);
  }
  T sum = 0;
  int64_t done = 0;
  if (count >= kLanes) {
    std::array<T, kLanes> lanes{};
    for (; done < count - count % kLanes; done += kLanes)
      for (auto& lane : lanes) lane += next();
    sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
          ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  for (; done < count; ++done) sum += next();
  return sum;
}

}  // namespace

void MeanLoss::add(const torch::Tensor& loss, int64_t weight) {
  if (batches_.empty()) type_ = loss.scalar_type();
  if (weight > 0) batches_.push_back({loss.item<double>(), weight});
}

double MeanLoss::over_rows() const {
  int64_t rows = 0;
  for (const auto& batch : batches_) rows += batch.weight;
  auto batch = batches_.begin();
  int64_t left = batch->weight;
  const auto next = [&] {
    if (left == 0) left = (++batch)->weight;
    --left;
    return batch->loss;
  };
  if (type_ == torch::kDouble) return pairwise_sum<double>(rows, next) / double(rows);
  const double mean = double(pairwise_sum<float>(rows, next)) / double(rows);
  return type_ == torch::kHalf ? double(c10::Half(float(mean))) : double(float(mean));
}

double MeanLoss::over_tokens() const {
  double sum = 0, weight = 0;
  for (const auto& batch : batches_) {
    sum += batch.loss * double(batch.weight);
    weight += double(batch.weight);
  }
  return sum / weight;
}

}  // namespace gradus
