#pragma once

#include <gradus/engine/step_engine.h>
#include <gradus/hooks/accelerator.h>
#include <gradus/hooks/hook.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus::hooks {

/// Settings of an `AccelerateHook`.
struct AccelerateOptions {
  int64_t gradient_accumulation_steps = 1;   ///< batches per optimizer step
  std::optional<double> max_grad_norm = {};  ///< the limit for clipping; unset: no clipping
  std::string mixed_precision = "no";        ///< "no", "fp16" (needs a GPU), "bf16"
  bool cpu = false;                          ///< use the CPU although there is a GPU
  int64_t timeout_seconds = 1800;            ///< when a process that does not answer counts as lost
};

/// Device, mixed precision, gradient accumulation, clipping and the processes of a run in one hook.
///
/// When a launcher has started several processes, each gets its share of the batches, and gradients
/// become their mean (see `DataParallel`). A loader is cut as accelerate cuts it: process r takes
/// batches r, r + world, ... and the first rows fill up the last round. So it is with a list of
/// batches, which accelerate gives to every process whole. Metrics are those of each process.
/// It does the work of `AMPHook`, `GradientAccumulationHook` and `GradClipHook`, so none of them
/// may be there, nor any other hook with `step_jobs()`.
class AccelerateHook : public Hook {
 public:
  /// Waits for the other processes, if a launcher has started several. Throws `Error` G-HOOK-1 for
  /// values out of range, and G-DIST-1, G-DIST-3 and G-DIST-6 as `gradus::Trainer` does.
  explicit AccelerateHook(AccelerateOptions options = {});
  /// Throws G-HOOK-5 when another hook has a job in a step.
  void before_fit(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;     ///< finds out whether the window ends
  void after_backward(Trainer& trainer) override;  ///< clips at the end of a window
  void after_step(Trainer& trainer) override;
  /// All of them.
  std::vector<StepJob> step_jobs() const override {
    return {StepJob::precision, StepJob::clipping, StepJob::accumulation};
  }

  /// Device, precision and window of the run.
  const Accelerator& accelerator() const { return *accelerator_; }
  /// The loss scaler of fp16; null before `fit` and for other precisions.
  GradScaler* scaler() const;

 private:
  AccelerateOptions options_;
  std::shared_ptr<Accelerator> accelerator_;
  std::shared_ptr<StepEngine> engine_;  // the trainer's
};

}  // namespace gradus::hooks
