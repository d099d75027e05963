#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/train/trainer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// A second set that is evaluated and predicted on after the first: MNLI's mismatched rows.
struct FurtherSet {
  std::string suffix = {};          ///< at the end of its metrics' keys
  DatasetRef eval_dataset = {};     ///< to evaluate on; may be empty
  DatasetRef predict_dataset = {};  ///< to predict on; may be empty
  /// Writes its predictions into a folder.
  std::function<void(const PredictionOutput&, const std::filesystem::path&)> write_predictions = {};
};

/// What came of a run.
struct TaskResult {
  std::map<std::string, Metrics> metrics;  ///< by split: "train", "eval", "predict"
  int interrupted_by = 0;                  ///< the signal that cut the run short; 0: none
  int64_t global_step = 0;                 ///< steps done
};

/// What a task has made ready: everything a trainer needs, and what to do with predictions.
struct PreparedTask {
  TrainerOptions trainer;      ///< all but `args`, which `run_task` sets
  DatasetRef predict_dataset;  ///< to predict on; may be empty
  /// Whether the metrics of a prediction are printed and written. transformers' script for text
  /// classification does not.
  bool report_predict_metrics = true;
  /// False: labels of `predict_dataset` only mark places, so that its loss and scores say nothing
  /// and are dropped.
  bool predict_has_labels = true;
  /// Writes the predictions into a folder, in the files of transformers' script for the task.
  std::function<void(const PredictionOutput&, const std::filesystem::path&)> write_predictions;
  std::vector<FurtherSet> further_sets;  ///< evaluated and predicted on after the first
  /// Completes the metrics of an evaluation (perplexity, say) before they are written.
  std::function<void(Metrics&)> finish_eval_metrics;
  /// The same for the metrics of a prediction.
  std::function<void(Metrics&)> finish_predict_metrics;
  /// Evaluates after training, where that takes more than `trainer.evaluate()`: options of
  /// generation, say. The keys of the metrics begin with "eval_".
  std::function<Metrics(Trainer& trainer)> evaluate;
  /// Predicts, where that takes more than `trainer.predict(predict_dataset, {}, "predict")`.
  std::function<PredictionOutput(Trainer& trainer)> predict;
  /// Makes the trainer, where it needs more than its options and arguments (a teacher, say). Unset:
  /// the table of trainers makes the one that `Task::trainer` names.
  std::function<std::unique_ptr<Trainer>(TrainerOptions)> make_trainer;
  /// Whether the trainer makes other rows of its data: it repeats, pairs, packs or splits them.
  bool makes_rows = false;
  /// Trains and evaluates, for a task that has no `Trainer`. Then the members above are not used.
  /// `callbacks` are those of `run_task` and its own.
  std::function<TaskResult(const std::vector<CallbackHandle>& callbacks)> run;
};

/// A task: model head, data preparation and metrics, as one object. `gradus train --task` runs it;
/// C++ programs may too.
///
/// Its flags are those of `add_options`, then those of its trainer's arguments. The task holds the
/// values of both. Thread-safety: none.
class Task {
 public:
  virtual ~Task() = default;

  /// What `--task` calls it.
  virtual std::string name() const = 0;
  /// The task's trainer, by its name in the table of trainers.
  virtual std::string trainer() const { return "Trainer"; }
  /// Adds the task's own options: model and data. The task must outlive the set.
  virtual void add_options(OptionSet& options) = 0;
  /// Looks at the options alone, before any file is opened. Throws an `Error` of kind usage.
  virtual void check(const TrainingArguments& args) const = 0;
  /// Opens data and model. `args` are the common arguments, resolved; those that only the task's
  /// trainer has are in `arguments()`.
  virtual PreparedTask prepare(const TrainingArguments& args) = 0;

  /// The arguments of the task's trainer: `arguments().as<Seq2SeqTrainingArguments>()`. They have
  /// their defaults at first.
  TrainerArguments& arguments();

 private:
  std::unique_ptr<TrainerArguments> arguments_;
};

/// Makes a task.
using TaskMaker = std::function<std::unique_ptr<Task>()>;

/// Adds a task. From then on `make_task` and the errors that list tasks know it.
///
///     gradus::register_task("sorting", [] { return std::make_unique<Sorting>(); });
///
/// Call it before the task is used, from main() or while static objects are set up.
/// Thread-safe. Throws `Error` G-REG-1 for a name that is taken, G-REG-2 for an empty name or no
/// `make`.
void register_task(const std::string& name, TaskMaker make);

/// Makes the task of this name. Throws `Error` G-TASK-1 for an unknown one, with those known and
/// the nearest.
std::unique_ptr<Task> make_task(const std::string& name);
/// The names of all tasks.
std::vector<std::string> task_names();

/// Throws `Error` where `run_task` would refuse the run before it opens anything: `output_dir` has
/// checkpoints that nobody wants to overwrite (G-TASK-2), or the checkpoint to resume from is not
/// there (G-CKPT-1) or not complete (G-CKPT-3).
void check_run_start(const TrainingArguments& args);

/// Trains, evaluates and predicts as `args` says, in the order and with the files of transformers'
/// scripts. `args` are resolved; they replace the common ones of `task.arguments()`.
/// `handle_signals`: SIGINT and SIGTERM save and stop. `callbacks` come after the task's own.
TaskResult run_task(Task& task, const TrainingArguments& args, bool handle_signals,
                    const std::vector<CallbackHandle>& callbacks = {});

}  // namespace gradus
