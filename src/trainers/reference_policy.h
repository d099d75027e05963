#pragma once

#include <gradus/models/peft_model.h>
#include <gradus/train/callback.h>

#include <memory>
#include <string>

#include "trainers/token_scores.h"

namespace gradus {

/// The policy that a trainer compares the trained one with, and that stays as it is.
///
/// It is a model of its own, or the trained model with its adapter off, or with the adapter as it
/// was at first.
/// Ownership: shares the models. Thread-safety: as a torch module.
class ReferencePolicy {
 public:
  /// There is none.
  ReferencePolicy() = default;

  /// `given`, if there is one. Else, for a model with an adapter: without the adapter when the
  /// trainer has just made it (`adapter_is_new`), or with a copy of the adapter, named "ref". Else
  /// a frozen copy of the model as it is now.
  ///
  /// `who` names the trainer in messages. Throws `Error` G-TRL-1 when `given` is the model itself,
  /// and when the model cannot be copied.
  static ReferencePolicy of(const std::shared_ptr<Model>& model,
                            const std::shared_ptr<Model>& given, bool adapter_is_new,
                            const std::string& who);
  /// The trained model itself, while it is as at first; with an adapter as `of` says.
  static ReferencePolicy itself(const std::shared_ptr<Model>& model, bool adapter_is_new);

  /// Whether there is one.
  explicit operator bool() const { return model_ != nullptr; }
  /// What it gives, without gradients. While `trained` computes with bfloat16 weights, so does the
  /// reference.
  ModelOutput forward(const Batch& inputs, const Model& trained,
                      const ForwardOptions& options = {}) const;
  /// Its scores of `labels` for a batch; see `score_tokens`.
  TokenScores score(const Batch& inputs, const torch::Tensor& labels, const Model& trained,
                    double temperature = 1) const;
  /// Its weights change (`sync_ref_model`), so they are kept in float32.
  void keep_float32() { stays_float32_ = true; }
  /// The model of its own; null when it shares the trained one.
  std::shared_ptr<Model> own_model() const { return adapted_ ? nullptr : model_; }

 private:
  std::shared_ptr<Model> model_;
  std::shared_ptr<PeftModel> adapted_;  ///< the trained model, where its adapters make the policy
  bool is_copy_ = false;                ///< Nobody else has the model.
  bool stays_float32_ = false;
};

/// How a trainer uses its reference.
struct ReferenceUse {
  bool adapter_is_new = false;  ///< The trainer has just made the model's adapter.
  bool asked_once = false;      ///< Before training: then the model itself is enough.
  bool is_synced = false;       ///< `sync_ref_model`: it must be a model of its own.
};

/// The reference of a trainer of preferences. Throws `Error` G-TRL-1 as `ReferencePolicy::of`, and
/// when `sync_ref_model` has no model to change.
ReferencePolicy reference_to_use(const std::shared_ptr<Model>& model,
                                 const std::shared_ptr<Model>& given, const ReferenceUse& use,
                                 const std::string& who);

/// `sync_ref_model`: every so many steps the reference moves towards the trained model,
/// reference = α · model + (1 - α) · reference. Checkpoints keep the reference.
class SyncRefModelCallback : public TrainerCallback {
 public:
  SyncRefModelCallback(std::shared_ptr<Model> reference, double mixup_alpha, int64_t sync_steps)
      : reference_(std::move(reference)), alpha_(mixup_alpha), steps_(sync_steps) {}
  std::string name() const override { return "SyncRefModelCallback"; }
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  StateTree tensor_state() const override;
  void load_tensor_state(const StateTree& state) override;

 private:
  std::shared_ptr<Model> reference_;
  double alpha_;
  int64_t steps_;
};

}  // namespace gradus
