#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/train/hyperparameter_search.h>
#include <gradus/train/trainer_state.h>

namespace gradus {

/// A hyperparameter search and the trial that is being trained.
struct SearchRun {
  const HyperparameterSearch& options;
  search::Trial* trial = nullptr;
  std::optional<double> objective = {};  ///< of the last evaluation

  /// Asks the space for the trial's parameters and puts them into the arguments. Warns of names
  /// that are no argument.
  void set_arguments(TrainingArguments& args) const;
  /// Says in the state which trial it is.
  void describe(TrainerState& state) const;
  /// Notes an evaluation. Throws `search::TrialPruned` when the trial is not worth going on with.
  void report(const Metrics& metrics, int64_t step);
  /// The trial's folder below output_dir.
  std::string folder() const;
};

}  // namespace gradus
