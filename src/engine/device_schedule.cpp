#include "engine/device_schedule.h"

#include <ATen/ops/index_select.h>

namespace gradus {
namespace {

constexpr int64_t kMostRows = 1 << 16;     // that a following table is filled with beforehand
constexpr int64_t kMostLedRows = 1 << 24;  // a leading one must hold the whole run

// The rates of the steps from the first on; zeros where the schedule cannot tell.
torch::Tensor rows_of(LRScheduler& scheduler, int64_t length, int64_t groups) {
  auto rows = torch::zeros({length, groups}, torch::kFloat);
  auto values = rows.accessor<float, 2>();
  for (int64_t step = 0; step < length; ++step) {
    const auto rates = scheduler.rates_after(step);
    for (int64_t g = 0; g < std::min(groups, int64_t(rates.size())); ++g)
      values[step][g] = float(rates[size_t(g)]);
  }
  return rows;
}

}  // namespace

std::unique_ptr<DeviceSchedule> DeviceSchedule::leading(LRScheduler& scheduler, int64_t max_steps,
                                                        torch::Device device) {
  const auto done = scheduler.steps_done();
  const auto groups = int64_t(scheduler.rates_after(done).size());
  const auto last = std::max(max_steps, done);
  if (groups == 0 || last >= kMostLedRows) return nullptr;
  const auto rows = rows_of(scheduler, last + 1, groups);
  return std::unique_ptr<DeviceSchedule>(
      new DeviceSchedule(scheduler, /*leads=*/true, rows, done, device));
}

std::unique_ptr<DeviceSchedule> DeviceSchedule::following(LRScheduler& scheduler,
                                                          const std::vector<ParamGroup>& groups,
                                                          int64_t max_steps, torch::Device device) {
  const auto done = scheduler.steps_done();
  const auto length = std::min(std::max(max_steps, done), kMostRows - 1) + 1;
  const auto rows = rows_of(scheduler, length, int64_t(groups.size()));
  return std::unique_ptr<DeviceSchedule>(
      new DeviceSchedule(scheduler, /*leads=*/false, rows, done % length, device));
}

DeviceSchedule::DeviceSchedule(LRScheduler& scheduler, bool leads, torch::Tensor rows,
                               int64_t first, torch::Device device)
    : scheduler_(scheduler),
      leads_(leads),
      host_(std::move(rows)),
      table_(host_.to(device)),
      counter_(torch::full({1}, first, torch::dtype(torch::kLong).device(device))),
      used_(counter_.clone()),
      next_row_(first) {}

void DeviceSchedule::follow(const std::vector<ParamGroup>& groups) {
  if (leads_) return;
  auto known = host_.accessor<float, 2>();
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& rate = known[next_row_][int64_t(g)];
    if (rate == float(groups[g].lr)) continue;
    rate = float(groups[g].lr);
    table_.select(0, next_row_)
        .select(0, int64_t(g))
        .fill_(rate);  // travels with the launch: nothing waits
  }
  next_row_ = (next_row_ + 1) % host_.size(0);
}

torch::Tensor DeviceSchedule::rates() const {
  return at::index_select(table_, 0, counter_).flatten();
}

void DeviceSchedule::step(const std::optional<torch::Tensor>& found_inf) {
  used_.copy_(counter_);
  if (found_inf)
    counter_.add_(found_inf->eq(0).reshape({1}));
  else
    counter_.add_(1);
  if (leads_)
    counter_.clamp_max_(table_.size(0) - 1);
  else
    counter_.remainder_(table_.size(0));
}

double DeviceSchedule::settle() {
  const auto reached = counter_.item<int64_t>();
  const auto rate = scheduler_.rates_after(used_.item<int64_t>()).front();
  while (scheduler_.steps_done() < reached) scheduler_.step();
  return rate;
}

}  // namespace gradus
