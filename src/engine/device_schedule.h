#pragma once

#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedulers.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace gradus {

/// The learning rates of a run as a table on the GPU with a counter beside it, so that a step that
/// is recorded or that may be skipped finds its own.
///
/// For fp16 the device leads: a step that was skipped because of infinities holds the schedule
/// back, and only the device knows. The host's schedule is brought up to date by `settle`.
/// Otherwise the host leads: it steps its schedule as ever, and `follow` writes down where the
/// table has another rate.
class DeviceSchedule {
 public:
  /// The device leads. Null where the schedule does not follow from the number of steps alone, or
  /// the run is too long for a table (16 million steps).
  static std::unique_ptr<DeviceSchedule> leading(LRScheduler& scheduler, int64_t max_steps,
                                                 torch::Device device);
  /// The host leads, with any schedule.
  static std::unique_ptr<DeviceSchedule> following(LRScheduler& scheduler,
                                                   const std::vector<ParamGroup>& groups,
                                                   int64_t max_steps, torch::Device device);

  /// Before each step, where the host leads: the step takes the rates of `groups`. Nothing is
  /// launched where the table has them already.
  void follow(const std::vector<ParamGroup>& groups);
  /// The rates for the step under way, one per group.
  torch::Tensor rates() const;
  /// After the step: moves on unless `found_inf` is set.
  void step(const std::optional<torch::Tensor>& found_inf);
  bool leads() const { return leads_; }
  /// Where the device leads: steps the host's schedule to where the device is and gives the first
  /// group's rate of the last step. Waits for the device.
  double settle();

 private:
  DeviceSchedule(LRScheduler& scheduler, bool leads, torch::Tensor rows, int64_t first,
                 torch::Device device);

  LRScheduler& scheduler_;
  bool leads_;
  torch::Tensor host_;  // what the table holds
  torch::Tensor
      table_;  // (steps, groups), float32; used again from the start when steps run over it
  torch::Tensor counter_;  // row of the next step, int64 (1)
  torch::Tensor used_;     // row of the last step
  int64_t next_row_;       // of the host's next step
};

}  // namespace gradus
