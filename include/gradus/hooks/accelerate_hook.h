#pragma once

#include <gradus/hooks/accelerator.h>
#include <gradus/hooks/hook.h>
#include <gradus/optim/grad_scaler.h>

#include <memory>
#include <optional>
#include <string>

namespace gradus::hooks {

struct AccelerateOptions {
  int64_t gradient_accumulation_steps = 1;
  std::optional<double> max_grad_norm = {};
  std::string mixed_precision = "no";  ///< "no", "fp16" (needs a GPU), "bf16"
  bool cpu = false;                    ///< stay on the CPU
};

/// Device, mixed precision, gradient accumulation and clipping in one hook, for one process.
/// Not beside `AMPHook`, `GradientAccumulationHook` and `GradClipHook`, whose work it does.
class AccelerateHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 for values out of range and when a launcher started several processes.
  explicit AccelerateHook(AccelerateOptions options = {});
  /// Throws G-HOOK-5 when one of the hooks named above is there.
  void before_fit(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_backward(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;

  const Accelerator& accelerator() const { return *accelerator_; }
  GradScaler* scaler() const { return scaler_.get(); }

 private:
  AccelerateOptions options_;
  std::shared_ptr<Accelerator> accelerator_;
  std::unique_ptr<GradScaler> scaler_;
};

}  // namespace gradus::hooks
