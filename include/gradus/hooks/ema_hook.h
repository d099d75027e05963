#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/hooks/hook.h>
#include <torch/types.h>

#include <optional>
#include <utility>
#include <vector>

namespace gradus::hooks {

/// Keeps an exponential moving average of the parameters, updated after every training batch, and
/// validates with it.
///
/// The averaged values take the place of the model's own from `before_valid` to `after_epoch`;
/// whoever holds the model sees them. They are put back however `fit` ends.
class EMAHook : public Hook {
 public:
  /// Throws `Error` G-HOOK-1 unless `decay` is in [0, 1].
  explicit EMAHook(double decay = 0.9999);
  void before_fit(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;
  void before_valid(Trainer& trainer) override;
  void after_epoch(Trainer& trainer) override;

  /// Whether the model holds the averaged values now.
  bool is_swapped() const { return swapped_; }
  /// Exchanges the model's values and the averaged ones.
  void swap();
  /// Averaged values for the next `before_fit`: parameters by name.
  void restore(StateTree parameters) { restored_ = std::move(parameters); }

 private:
  double decay_;
  std::vector<std::pair<std::string, torch::Tensor>> parameters_;  // of the model
  std::vector<torch::Tensor> average_;
  std::optional<StateTree> restored_;
  bool swapped_ = false;
};

}  // namespace gradus::hooks
