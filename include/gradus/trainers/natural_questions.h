#pragma once

#include <gradus/config/trainer_arguments.h>

#include <span>
#include <string>

namespace gradus {

/// Where the defaults of the Flax example on natural questions differ from those of transformers'
/// Trainer.
struct NaturalQuestionsDefaults : TrainingDefaults {
  static double learning_rate() { return 3e-5; }              ///< `lr` of the example.
  static int64_t per_device_train_batch_size() { return 1; }  ///< `batch_size_per_device`.
  static double num_train_epochs() { return 5; }              ///< `max_epochs`.
  static StepsOrRatio warmup_steps() { return 20000; }        ///< Steps from `init_lr` on.
  static double weight_decay() { return 0.0095; }             ///< Not of biases and norms.
  static StepsOrRatio logging_steps() { return 3000; }        ///< Evaluates and logs.
  static StepsOrRatio save_steps() { return 10500; }          ///< Writes a checkpoint.
};

/// The arguments of the task `natural-questions`, which trains with `functional::Trainer`: those of
/// `TrainingArguments` that the Flax example has under this or another name, then its own.
struct NaturalQuestionsArguments {
#define GRADUS_DEFAULTS NaturalQuestionsDefaults
#include <gradus/config/training_arguments_fields.inc>

  double init_lr = 0.0;  ///< Learning rate of the first step.
  /// Checkpoints are folders `<output_dir>/<save_dir>-e<epoch>-s<step>`.
  std::string save_dir = "bigbird-roberta-natural-questions";

  /// The table of these two.
  static std::span<const OptionRow<NaturalQuestionsArguments>> own_options();
  /// Everything but the two.
  operator TrainingArguments() const { return common_arguments(*this); }  // NOLINT: converts
};

namespace detail {
/// The rows of `NaturalQuestionsArguments::own_options`.
inline constexpr OptionRow<NaturalQuestionsArguments> kNaturalQuestionsRows[] = {
    {&NaturalQuestionsArguments::init_lr, "init_lr", Group::trainer, at_least(0.0),
     "Learning rate at the beginning of the warm-up."},
    {&NaturalQuestionsArguments::save_dir, "save_dir", Group::trainer, any_value(),
     "First part of the names of checkpoints: <save_dir>-e<epoch>-s<step> in output_dir."},
};
}  // namespace detail

inline std::span<const OptionRow<NaturalQuestionsArguments>>
NaturalQuestionsArguments::own_options() {
  return detail::kNaturalQuestionsRows;
}

}  // namespace gradus
