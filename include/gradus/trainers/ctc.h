#pragma once

#include <gradus/train/trainer.h>

namespace gradus {

/// The Trainer for speech recognition of transformers' research projects, `CTCTrainer`.
///
/// It differs from `Trainer` in gradient accumulation only: the loss of a batch is divided by the
/// number of batches in the window. A plain Trainer leaves that to the model, and the CTC loss of
/// transformers does not do it. Without accumulation the two are the same.
class CTCTrainer : public Trainer {
 public:
  /// As the constructor of `Trainer`.
  explicit CTCTrainer(TrainerOptions options);

 protected:
  /// None: the loss is a mean or a sum over the batch.
  std::optional<torch::Tensor> get_num_items_in_batch(
      const std::vector<Batch>& window) const override;
  /// Training steps are those of `Trainer`.
  StepTraits step_traits() const override;
};

}  // namespace gradus
