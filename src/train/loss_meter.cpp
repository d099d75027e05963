#include "train/loss_meter.h"

#include <cmath>

namespace gradus {

LossMeter::LossMeter(torch::Device device) : on_cpu_(device.is_cpu()) {
  if (on_cpu_) return;
  sum_ = torch::zeros({}, torch::dtype(torch::kFloat).device(device));
  mark_ = torch::zeros_like(sum_);
  filtered_ = torch::zeros({}, torch::dtype(torch::kLong).device(device));
}

void LossMeter::add(const torch::Tensor& loss, bool filter, int64_t steps_since_log) {
  if (on_cpu_) {
    const double value = loss.item<double>();
    const bool replace = filter && !std::isfinite(value);
    if (replace) ++cpu_filtered_;
    cpu_sum_ = replace ? cpu_sum_ + cpu_sum_ / float(1 + steps_since_log)
                       : float(double(cpu_sum_) + value);
    return;
  }
  const torch::NoGradGuard no_grad;
  if (!filter) {
    sum_ += loss;
    return;
  }
  const auto finite = loss.isfinite();
  sum_ += torch::where(finite, loss.to(torch::kFloat), sum_ / double(1 + steps_since_log));
  filtered_ += finite.logical_not();
}

void LossMeter::mark() {
  if (on_cpu_)
    cpu_mark_ = cpu_sum_;
  else
    mark_.copy_(sum_);
}

void LossMeter::replace_since_mark(int64_t steps_since_log) {
  // Without steps before there is no mean: the step then counts as nothing.
  const double factor = steps_since_log > 0 ? 1.0 / double(steps_since_log) : 0.0;
  if (on_cpu_)
    cpu_sum_ = cpu_mark_ + float(double(cpu_mark_) * factor);
  else
    sum_.copy_(mark_ * (1.0 + factor));
}

double LossMeter::sum() const { return on_cpu_ ? double(cpu_sum_) : sum_.item<double>(); }
int64_t LossMeter::filtered() const { return on_cpu_ ? cpu_filtered_ : filtered_.item<int64_t>(); }

double LossMeter::drain() {
  const double value = sum();
  if (on_cpu_)
    cpu_sum_ = 0;
  else
    sum_.zero_();
  return value;
}

void LossMeter::restore(double sum, int64_t filtered) {
  if (on_cpu_) {
    cpu_sum_ = float(sum);
    cpu_filtered_ = filtered;
  } else {
    sum_.fill_(sum);
    filtered_.fill_(filtered);
  }
}

}  // namespace gradus
