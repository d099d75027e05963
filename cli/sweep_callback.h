#pragma once

#include <gradus/search/study.h>
#include <gradus/train/callback.h>

namespace gradus::cli {

/// What a process that trains a trial of `gradus sweep` is told, in the variable GRADUS_TRIAL.
struct SweepTrial {
  std::string storage;     ///< the file of the study
  std::string study_name;  ///< its name there
  std::string direction;   ///< "minimize" or "maximize"
  std::string pruner;      ///< by its name
  std::string metric;      ///< what is reported, "eval_loss"
  int64_t id = 0;          ///< the trial

  /// The text of the variable.
  std::string to_text() const;
  /// That of this process; unset when it trains no trial.
  static std::optional<SweepTrial> of_environment();
};

/// Reports evaluations to the study and stops the run when the pruner says so.
class SweepCallback : public TrainerCallback {
 public:
  explicit SweepCallback(SweepTrial trial);
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;

 private:
  SweepTrial told_;
  search::Study study_;
  search::Trial trial_;
};

/// The metric of this name in `metrics`, with or without "eval_"; unset when there is none.
std::optional<double> metric_named(const Metrics& metrics, const std::string& name);

}  // namespace gradus::cli
