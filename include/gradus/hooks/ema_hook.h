#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/hooks/hook.h>
#include <torch/types.h>

#include <optional>
#include <utility>
#include <vector>

namespace gradus::hooks {

/// Keeps an exponential moving average of the parameters and validates with it.
///
/// The average is updated after every training batch: `average = decay * average + (1 - decay) *
/// parameter`. From `before_valid` to `after_epoch` the model holds the averaged values, and
/// whoever uses the model meanwhile sees them. The model's own values are back when `fit` ends,
/// also when it ends with an exception.
class EMAHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 unless `decay` is in [0, 1].
  explicit EMAHook(double decay = 0.9999);
  /// Starts the average with the parameters, or with what `restore` was given.
  void before_fit(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;    ///< updates the average
  void before_valid(Trainer& trainer) override;  ///< gives the model the averaged values
  void after_epoch(Trainer& trainer) override;   ///< gives the model its own values back

  /// Whether the model holds the averaged values now.
  bool is_swapped() const { return swapped_; }
  /// Exchanges the model's values and the averaged ones.
  void swap();
  /// Whether the batch under way is counted and not yet in the average. That is so in `after_step`
  /// of hooks that run before this one.
  bool is_behind(const Trainer& trainer) const;
  /// Sets the averaged values that the next `before_fit` starts with: tensors by parameter name.
  /// With `is_behind` it adds the model's parameters to them, as `after_step` would have.
  void restore(StateTree parameters, bool is_behind = false) {
    restored_ = std::move(parameters);
    restored_behind_ = is_behind;
  }

 private:
  void update(const Trainer& trainer);

  double decay_;
  std::vector<std::pair<std::string, torch::Tensor>> parameters_;  // of the model
  std::vector<torch::Tensor> average_;
  std::optional<StateTree> restored_;
  bool restored_behind_ = false;
  int64_t averaged_samples_ = 0;  // training rows whose steps are in the average
  bool swapped_ = false;
};

}  // namespace gradus::hooks
