#pragma once

#include <gradus/optim/schedulers.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace gradus {

/// The learning rates of a run as a table on the GPU with a counter beside it, for fp16: a step that was skipped because of
/// infinities holds the schedule back, and only the device knows. The host's schedule is brought up to date by `settle`.
class DeviceSchedule {
 public:
  /// Null where the schedule does not follow from the number of steps alone.
  static std::unique_ptr<DeviceSchedule> make(LRScheduler& scheduler, int64_t max_steps, torch::Device device);

  /// The rates for the step under way, one per group.
  torch::Tensor rates() const;
  /// After the step: moves on unless `found_inf` is set.
  void step(const torch::Tensor& found_inf);
  /// Steps the host's schedule to where the device is and gives the first group's rate of the last step. Waits for the device.
  double settle();

 private:
  DeviceSchedule(LRScheduler& scheduler, torch::Tensor table, torch::Tensor counter);

  LRScheduler& scheduler_;
  torch::Tensor table_;    // (steps, groups)
  torch::Tensor counter_;  // steps taken, int64 (1)
  torch::Tensor used_;     // the counter of the last step
};

}  // namespace gradus
