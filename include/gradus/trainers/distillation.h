#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/train/trainer.h>

namespace gradus {

/// The arguments of a distillation: those of `TrainingArguments`, then what the loss is made of.
/// The defaults are those of transformers' research project `distillation`.
struct DistillationArguments {
#include <gradus/config/training_arguments_fields.inc>

  double temperature = 2.0;  ///< Logits are divided by it before teacher and student are compared.
  double alpha_soft = 0.5;   ///< Weight of the soft targets.
  double alpha_hard = 0.5;   ///< Weight of the student's own loss, with the labels.
  double alpha_cos = 0.0;    ///< Weight of the angle between the last hidden states.
  double alpha_mse = 0.0;    ///< Weight of the squared distance between the logits.

  /// The table of these five.
  static std::span<const OptionRow<DistillationArguments>> own_options();

  /// As `TrainingArguments::resolved`; the five are checked too.
  DistillationArguments resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static DistillationArguments from_json(const nlohmann::json& dict);
  /// Everything but the five.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const DistillationArguments&, const DistillationArguments&);
};

/// The members of `TrainerOptions`, and the teacher. The model is the student.
struct DistillationTrainerOptions {
  using Arguments = DistillationArguments;  ///< Their type.
  using ScoreFunction = ComputeMetrics;     ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// The model to learn from. It is not changed. Null: the labels are its probabilities.
  std::shared_ptr<Model> teacher = nullptr;
};

/// A small model learns from a large one.
///
/// With s and t for the logits of student and teacher and T for the temperature the loss is
///
///     alpha_soft * T^2 * KL(softmax(t/T) || softmax(s/T)) + alpha_hard * the student's own loss
///     + alpha_mse * |s - t|^2 + alpha_cos * (1 - cosine of the last hidden states)
///
/// Each part is the mean over rows; for models of tokens over those that `attention_mask` (or,
/// where it has another shape, a label other than -100) marks. A part whose weight is 0 is not
/// computed. The teacher gets the batch without labels, in evaluation mode, without gradients and
/// in the type of its own weights.
///
/// Without a teacher the labels are its probabilities, a row of floats for each row of logits, and
/// the loss is the cross entropy with them: the DistillationTrainer of transformers' zero-shot
/// distillation.
class DistillationTrainer : public Trainer {
 public:
  /// Throws `Error` G-TRAIN-22 when teacher and student are the same object, or no part of the loss
  /// has a weight.
  explicit DistillationTrainer(DistillationTrainerOptions options);

  /// As given and resolved, with the five options of this trainer.
  const DistillationArguments& distillation_args() const { return args_; }
  /// The teacher; null when there is none.
  const std::shared_ptr<Model>& teacher() const { return teacher_; }

 protected:
  /// The loss above. Throws `Error` G-TRAIN-22 when the outputs of student and teacher do not go
  /// together.
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  /// With hidden states where the loss needs them.
  ModelOutput run_model(Model& model, const Batch& inputs, bool training) override;
  /// None: every part of the loss is a mean over the batch.
  std::optional<torch::Tensor> get_num_items_in_batch(
      const std::vector<Batch>& window) const override;
  /// With the five.
  nlohmann::ordered_json arguments_to_save() const override;

 private:
  ModelOutput teacher_outputs(Batch inputs) const;
  torch::Tensor soft_loss(const torch::Tensor& student, const torch::Tensor& teacher) const;

  DistillationArguments args_;
  std::shared_ptr<Model> teacher_;
};

}  // namespace gradus
