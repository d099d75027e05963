#pragma once

#include <gradus/engine/step_engine.h>
#include <gradus/hooks/hook.h>
#include <gradus/optim/grad_scaler.h>
#include <gradus/optim/schedulers.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>

namespace gradus::hooks {

/// Settings of an `AMPHook`.
struct AMPOptions {
  bool enabled = true;                                ///< false: train in float32
  torch::ScalarType dtype = torch::kHalf;             ///< float16 or bfloat16
  std::optional<torch::DeviceType> device_type = {};  ///< default: the trainer's device
};

/// Mixed precision: autocast around both steps, and loss scaling for float16 on a GPU. Models with
/// bfloat16 parameters train without loss scaling.
class AMPHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 for another dtype.
  explicit AMPHook(AMPOptions options = {});
  /// Sets the trainer's precision.
  void before_fit(Trainer& trainer) override;
  std::vector<StepJob> step_jobs() const override { return {StepJob::precision}; }

  /// Null before `fit`; disabled when gradients need no scaling.
  GradScaler* scaler() const;

 private:
  AMPOptions options_;
  std::shared_ptr<StepEngine> engine_;  // the trainer's
  std::unique_ptr<GradScaler> disabled_ =
      std::make_unique<GradScaler>(torch::kCPU, GradScalerOptions{.enabled = false});
};

/// Steps a learning rate schedule after every batch for which the optimizer really stepped. With
/// gradient accumulation that is once per window.
class LRSchedulerHook : public Hook {
 public:
  /// Makes a schedule for an optimizer.
  using Factory = std::function<std::shared_ptr<LRScheduler>(Optimizer&)>;

  /// With a schedule that exists already, for the trainer's optimizer.
  explicit LRSchedulerHook(std::shared_ptr<LRScheduler> scheduler);
  /// With a schedule that `before_fit` makes for the trainer's optimizer.
  explicit LRSchedulerHook(Factory factory);
  void before_fit(Trainer& trainer) override;  ///< makes the schedule
  void after_step(Trainer& trainer) override;  ///< steps it

  /// How far the schedule goes with every optimizer step: `AccelerateHook` sets the number of
  /// processes, so that a schedule is planned in batches of one process, as with accelerate.
  void set_stride(int64_t stride) { stride_ = stride; }
  /// The learning rate of the first parameter group. Throws `Error` G-HOOK-8 before `fit` has made
  /// the schedule.
  double lr() const;
  /// The schedule. Throws G-HOOK-8 before `fit` has made it.
  LRScheduler& scheduler() const;

 private:
  Factory factory_;
  std::shared_ptr<LRScheduler> scheduler_;
  int64_t stride_ = 1;
};

/// Clips the gradients before an optimizer step: when their total norm is above `max_norm`, all are
/// scaled down to it. Under `AMPHook` they are unscaled first.
class GradClipHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 unless `max_norm` is positive.
  explicit GradClipHook(double max_norm = 1.0);
  /// Sets the norm that the trainer's engine clips to.
  void before_fit(Trainer& trainer) override;
  std::vector<StepJob> step_jobs() const override { return {StepJob::clipping}; }

 private:
  double max_norm_;
};

/// Gradient accumulation: the optimizer steps, and gradients are zeroed, only every `steps` batches
/// and after the last batch of a pass. Every loss is divided by `steps`.
class GradientAccumulationHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 when `steps` is below 1.
  explicit GradientAccumulationHook(int64_t steps = 1);
  /// Sets the length of a window.
  void before_fit(Trainer& trainer) override;
  std::vector<StepJob> step_jobs() const override { return {StepJob::accumulation}; }

 private:
  int64_t steps_;
};

/// Gives cached GPU memory back to the device before validation.
class EmptyCudaCacheHook : public Hook {
 public:
  void before_valid(Trainer& trainer) override;
};

}  // namespace gradus::hooks
