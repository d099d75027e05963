#include "train/device_schedule.h"

#include <ATen/ops/index_select.h>

namespace gradus {

std::unique_ptr<DeviceSchedule> DeviceSchedule::make(LRScheduler& scheduler, int64_t max_steps, torch::Device device) {
  const auto done = scheduler.steps_done();
  const auto groups = int64_t(scheduler.rates_after(done).size());
  if (groups == 0) return nullptr;
  const int64_t length = std::max(max_steps, done) + 1;
  auto table = torch::empty({length, groups}, torch::kFloat);
  auto rows = table.accessor<float, 2>();
  for (int64_t step = 0; step < length; ++step) {
    const auto rates = scheduler.rates_after(step);
    for (int64_t g = 0; g < groups; ++g) rows[step][g] = float(rates[size_t(g)]);
  }
  return std::unique_ptr<DeviceSchedule>(new DeviceSchedule(scheduler, table.to(device), torch::full({1}, done, torch::dtype(torch::kLong).device(device))));
}

DeviceSchedule::DeviceSchedule(LRScheduler& scheduler, torch::Tensor table, torch::Tensor counter)
    : scheduler_(scheduler), table_(std::move(table)), counter_(std::move(counter)), used_(counter_.clone()) {}

torch::Tensor DeviceSchedule::rates() const { return at::index_select(table_, 0, counter_).flatten(); }

void DeviceSchedule::step(const torch::Tensor& found_inf) {
  used_.copy_(counter_);
  counter_.add_(found_inf.eq(0).reshape({1}));
  counter_.clamp_max_(table_.size(0) - 1);
}

double DeviceSchedule::settle() {
  const auto reached = counter_.item<int64_t>();
  const auto rate = scheduler_.rates_after(used_.item<int64_t>()).front();
  while (scheduler_.steps_done() < reached) scheduler_.step();
  return rate;
}

}  // namespace gradus
