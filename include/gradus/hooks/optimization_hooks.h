#pragma once

#include <gradus/hooks/hook.h>
#include <gradus/optim/grad_scaler.h>
#include <gradus/optim/schedulers.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>

namespace gradus::hooks {

struct AMPOptions {
  bool enabled = true;
  torch::ScalarType dtype = torch::kHalf;
  std::optional<torch::DeviceType> device_type = {};  ///< default: the trainer's device
};

/// Mixed precision: autocast around both steps, and for float16 on a GPU, unless parameters are
/// bfloat16, loss scaling.
class AMPHook : public Hook {
 public:
  explicit AMPHook(AMPOptions options = {});
  void before_fit(Trainer& trainer) override;

  /// Null before `fit`; disabled where gradients need no scaling.
  GradScaler* scaler() const { return scaler_.get(); }

 private:
  AMPOptions options_;
  std::unique_ptr<GradScaler> scaler_;
};

/// Moves a learning rate schedule on after every batch that really stepped.
class LRSchedulerHook : public Hook {
 public:
  using Factory = std::function<std::shared_ptr<LRScheduler>(Optimizer&)>;

  explicit LRSchedulerHook(std::shared_ptr<LRScheduler> scheduler);
  /// The schedule is made in `before_fit`, from the trainer's optimizer.
  explicit LRSchedulerHook(Factory factory);
  void before_fit(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;

  /// The rate of the first group. Both throw `Error` G-HOOK-8 before `fit` has made the schedule.
  double lr() const;
  LRScheduler& scheduler() const;

 private:
  Factory factory_;
  std::shared_ptr<LRScheduler> scheduler_;
};

/// Scales gradients down to `max_norm` before an optimizer step; unscales them first under
/// `AMPHook`.
class GradClipHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 unless `max_norm` is positive.
  explicit GradClipHook(double max_norm = 1.0);
  void before_fit(Trainer& trainer) override;

 private:
  double max_norm_;
};

/// Divides the loss by `steps`, and steps and zeroes gradients only every `steps` batches and after
/// the last of a pass.
class GradientAccumulationHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 when `steps` is below 1.
  explicit GradientAccumulationHook(int64_t steps = 1);
  void before_fit(Trainer& trainer) override;

 private:
  int64_t steps_;
};

/// Gives cached GPU memory back before validation.
class EmptyCudaCacheHook : public Hook {
 public:
  void before_valid(Trainer& trainer) override;
};

}  // namespace gradus::hooks
