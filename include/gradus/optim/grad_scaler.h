#pragma once

#include <gradus/optim/optimizer.h>

#include <memory>

namespace gradus {

/// Settings of `GradScaler`, with torch's names and defaults.
struct GradScalerOptions {
  /// The first scale.
  double init_scale = 65536.0;
  /// What the scale is multiplied by after `growth_interval` good steps in a row.
  double growth_factor = 2.0;
  /// What the scale is multiplied by after a step with inf or NaN.
  double backoff_factor = 0.5;
  /// Good steps in a row until the scale grows.
  int64_t growth_interval = 2000;
  /// If false, the scale is 1 and nothing is checked.
  bool enabled = true;
};

/// Loss scaling for float16, `torch.amp.GradScaler`: scale the loss, unscale the gradients, skip a
/// step with infinities and lower the scale, raise it after `growth_interval` good steps.
///
/// Scale and counters live on `device`; nothing is read back unless asked.
/// Order of a step: `scale(loss).backward()`, `unscale_(optimizer)` (only needed before clipping),
/// `step`, `update`. Thread-safety: none.
class GradScaler {
 public:
  /// `device` is where the losses are.
  explicit GradScaler(torch::Device device = torch::kCPU, GradScalerOptions options = {});

  /// Whether losses are scaled at all.
  bool is_enabled() const { return options_.enabled; }
  /// Says that the gradients become the mean over `count` processes before `unscale_`, each of
  /// which has an equal share of the batch. `scale` then divides a loss by that number, and
  /// `unscale_` multiplies the mean by it. So a row's numbers in half precision are as large as in
  /// one process that has the whole batch, and not `count` times as large: they overflow where
  /// those do.
  void set_shares(int64_t count) { shares_ = double(count); }
  /// The loss times the scale, divided by the number of shares; the loss itself when disabled.
  torch::Tensor scale(const torch::Tensor& loss);
  /// Undoes the scale in the gradients and notes whether one is not finite.
  /// Throws `Error` G-OPTIM-8 when called twice since the last `update`.
  void unscale_(Optimizer& optimizer);
  /// Steps unless a gradient was not finite. Unscales first when that was not done. `context`: what
  /// the step takes besides.
  void step(Optimizer& optimizer, StepContext context = {});
  /// Moves the scale up or down for the next step. Throws G-OPTIM-8 when no gradient was checked
  /// since the last.
  void update();

  /// One element, non-zero when `unscale_` met a gradient that is not finite. Ranks that hold
  /// different gradients add theirs up between `unscale_` and `step`.
  torch::Tensor& found_inf() { return found_inf_; }
  /// Whether the last `step` was skipped. Reads the device.
  bool step_was_skipped() const;
  /// The scale now. Reads the device.
  double get_scale() const;
  /// Sets the scale of the next step.
  void set_scale(double scale);

  /// Python's keys: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; empty
  /// when disabled.
  StateTree state_dict() const;
  /// Takes over what `state_dict()` gave, here or in Python.
  void load_state_dict(const StateTree& state);

 private:
  enum class Stage { ready, unscaled, stepped };

  GradScalerOptions options_;
  torch::Device device_;
  torch::Tensor scale_, growth_tracker_, found_inf_;
  double shares_ = 1;
  Stage stage_ = Stage::ready;
};

}  // namespace gradus
