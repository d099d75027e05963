#pragma once

#include <torch/types.h>

#include <cstdint>

namespace gradus {

/// The sum of training losses since the last log, in float32 on the run's device: adding to it
/// never waits for the device.
class LossMeter {
 public:
  explicit LossMeter(torch::Device device);

  /// Adds one micro-batch's loss. With `filter`, one that is not finite is replaced by the mean of
  /// the window so far, `sum / (1 + steps_since_log)`, and counted.
  void add(const torch::Tensor& loss, bool filter, int64_t steps_since_log);
  /// Notes the sum as it is now.
  void mark();
  /// Replaces what was added since `mark` by the mean of the steps before, for a step that is left
  /// out. Does not wait.
  void replace_since_mark(int64_t steps_since_log);
  /// The sum, set back to zero. Waits for the device.
  double drain();

  // For checkpoints. Both wait for the device.
  double sum() const;
  int64_t filtered() const;
  void restore(double sum, int64_t filtered);

 private:
  bool on_cpu_;
  float cpu_sum_ = 0, cpu_mark_ = 0;
  int64_t cpu_filtered_ = 0;
  torch::Tensor sum_, mark_, filtered_;
};

}  // namespace gradus
