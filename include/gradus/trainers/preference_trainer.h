#pragma once

#include <gradus/trainers/trl_trainer.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus {

class ReferencePolicy;
struct PreferenceSetup;

/// The common part of DPO and KTO: the policy is compared with a reference, which is asked in every
/// step or once, before training.
///
/// A derived class prepares its rows and says what it asks the reference (`reference_log_probs`).
/// Its constructor ends with `ask_reference_once`. Thread-safety: as `Trainer`.
class PreferenceTrainer : public TrlTrainer {
 public:
  ~PreferenceTrainer() override;

 protected:
  /// `arguments` are all of the trainer's, for training_args.json.
  PreferenceTrainer(PreferenceSetup setup, nlohmann::ordered_json arguments);

  /// With `precompute_ref_log_probs`: adds the columns of the reference to all data, and to sets
  /// that `evaluate` is given.
  void ask_reference_once();
  /// The log probabilities of a batch by the reference, one tensor for each of its columns: those
  /// of the batch, where they were computed before.
  std::vector<torch::Tensor> by_reference(const Batch& inputs) const;
  /// The same, asked now. Called without gradients and, for a batch of training, without dropout.
  virtual std::vector<torch::Tensor> reference_log_probs(
      const Batch& inputs, const ReferencePolicy& reference) const = 0;

 private:
  /// The rows with the columns of the reference.
  DatasetRef with_reference(const DatasetRef& rows, const std::string& name) const;
  std::vector<torch::Tensor> ask(const Batch& inputs) const;

  std::unique_ptr<PreferenceSetup> setup_;  ///< Its options have moved on.
};

}  // namespace gradus
