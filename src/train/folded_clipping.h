#pragma once

#include <gradus/train/callback.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

namespace gradus {

/// Clipping that the optimizer's kernel does as it reads the gradients, for a GPU.
///
/// A callback that looks at them in on_pre_optimizer_step sees them clipped all the same. Of one
/// that the event has not come to yet nobody knows: it gets clipped copies, so that the step is the
/// same whether it looks or not. Order of a step: `clip`, the event, `settle`.
class FoldedClipping {
 public:
  using Callbacks = std::vector<std::shared_ptr<TrainerCallback>>;

  /// Whether it is known that no callback looks at the gradients before the step.
  bool is_unseen(const Callbacks& callbacks) const { return sight_of(callbacks) == Sight::none; }
  /// The gradients of `parameters` are to be multiplied by `coefficient`.
  void clip(const std::vector<torch::Tensor>& parameters, const torch::Tensor& coefficient,
            const Callbacks& callbacks);
  /// What is left to the optimizer: the coefficient, or nothing where the gradients are clipped or
  /// were not to be.
  std::optional<torch::Tensor> settle(const std::vector<torch::Tensor>& parameters,
                                      const Callbacks& callbacks);

 private:
  enum class Sight { none, some, unknown };
  Sight sight_of(const Callbacks& callbacks) const;

  std::optional<torch::Tensor> coefficient_;
  std::vector<torch::Tensor> unclipped_;  // while the parameters have copies; one each
  Callbacks asked_;                       // those that the event has come to
};

}  // namespace gradus
