#pragma once

#include <gradus/config/option_set.h>
#include <gradus/train/trainer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// A second set that is evaluated and predicted on after the first: MNLI's mismatched rows.
struct FurtherSet {
  std::string suffix = {};  ///< at the end of its metrics' keys
  DatasetRef eval_dataset = {};
  DatasetRef predict_dataset = {};
  std::function<void(const PredictionOutput&, const std::filesystem::path&)> write_predictions = {};
};

/// What a task has made ready: everything a Trainer needs, and what to do with predictions.
struct PreparedTask {
  TrainerOptions trainer;
  DatasetRef predict_dataset;
  /// Whether the metrics of a prediction are printed and written; HF's text classification keeps
  /// them to itself.
  bool report_predict_metrics = true;
  /// False: labels of `predict_dataset` only mark places, so that its loss and scores say nothing
  /// and are dropped.
  bool predict_has_labels = true;
  /// Writes the predictions into a folder, in the files of HF's script for the task; may add to the
  /// metrics.
  std::function<void(const PredictionOutput&, const std::filesystem::path&)> write_predictions;
  std::vector<FurtherSet> further_sets;
  /// Completes the metrics of an evaluation (perplexity, say) before they are written.
  std::function<void(Metrics&)> finish_eval_metrics;
  /// Makes the trainer; unset: a plain Trainer.
  std::function<std::unique_ptr<Trainer>(TrainerOptions)> make_trainer;
};

/// A task: model head, data preparation and metrics, as one object. The command line runs it; C++
/// may too.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::string name() const = 0;
  /// Adds the task's own options. The task holds their values.
  virtual void add_options(OptionSet& options) = 0;
  /// Looks at the options alone, before any file is opened. Throws an `Error` of kind usage.
  virtual void check(const TrainingArguments& args) const = 0;
  /// Opens data and model.
  virtual PreparedTask prepare(const TrainingArguments& args) = 0;
};

/// Throws G-TASK-1 with the known names.
std::unique_ptr<Task> make_task(const std::string& name);
const std::vector<std::string>& task_names();

/// What came of a run: metrics by split, and the signal that cut it short (0: none).
struct TaskResult {
  std::map<std::string, Metrics> metrics;
  int interrupted_by = 0;
  int64_t global_step = 0;
};

/// Train, evaluate, predict, as `args` says, in the order and with the files of HF's scripts.
/// `handle_signals`: SIGINT and SIGTERM save and stop.
TaskResult run_task(Task& task, const TrainingArguments& args, bool handle_signals);

}  // namespace gradus
