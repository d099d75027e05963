#pragma once

#include <gradus/core/metrics.h>
#include <gradus/search/study.h>

namespace gradus {

/// transformers' default space: learning_rate from 1e-6 to 1e-4 (logarithmic), num_train_epochs
/// from 1 to 5, seed from 1 to 40, per_device_train_batch_size one of 4, 8, 16, 32, 64.
nlohmann::json default_hp_space(search::Trial& trial);

/// transformers' default objective: the evaluation loss when there is nothing else, otherwise the
/// sum of all other metrics but the epoch, times and speeds.
double default_compute_objective(const Metrics& metrics);

/// What `Trainer::hyperparameter_search` takes; the first five as in transformers.
struct HyperparameterSearch {
  /// The values of one trial, by the name of a training argument. Names that are no training
  /// argument are warned of; `model_init` can use them.
  std::function<nlohmann::json(search::Trial&)> hp_space = default_hp_space;
  /// What to minimize or maximize, from the metrics of an evaluation.
  std::function<double(const Metrics&)> compute_objective = default_compute_objective;
  int64_t n_trials = 20;               ///< How many trials the study has in the end.
  std::string direction = "minimize";  ///< Or "maximize".
  /// The name of a trial: its folder below output_dir, by default run-NUMBER, and in trackers.
  std::function<std::string(search::Trial&)> hp_name = nullptr;

  /// The SQLite file of the study, which Optuna opens. Empty: in memory, gone with the process.
  std::filesystem::path storage = {};
  std::string study_name = "gradus";                   ///< Its name in the file.
  std::shared_ptr<search::Sampler> sampler = nullptr;  ///< By default TPE.
  std::shared_ptr<search::Pruner> pruner = nullptr;    ///< By default the median.
};

/// The best trial of a search.
struct BestRun {
  std::string run_id;              ///< Its number: checkpoints are in the folder run-NUMBER.
  double objective = 0;            ///< What it reached.
  nlohmann::json hyperparameters;  ///< Its parameters by name.
};

}  // namespace gradus
