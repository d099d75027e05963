#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/tasks/task.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/run_log_callback.h>
#include <gradus/trainers/registry.h>
#include <signal.h>

#include "checkpoint/run_lock.h"
#include "core/list_folder.h"
#include "runs/run_reader.h"
#include "train/resume.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// A run folder with checkpoints is only gone on with, or overwritten, when that is asked for.
void check_output_dir(const TrainingArguments& args) {
  const fs::path folder = *args.output_dir;
  if (!args.do_train || args.resume_from_checkpoint) return;
  const auto newest = newest_checkpoint(folder);
  if (!newest) return;
  if (!args.overwrite_output_dir)
    throw Error(
        "G-TASK-2", ErrorKind::usage,
        fmt::format("{} already holds checkpoints (the newest is {})", folder.string(),
                    newest->path.filename().string()),
        "Continue with --resume_from_checkpoint last, start again with --overwrite_output_dir, "
        "or name another --output_dir.");
}

// Whether a file of an output folder says what came of a run.
bool is_result_of_a_run(const std::string& name) {
  return name.ends_with("_results.json") || name == "trainer_state.json" ||
         name == "predictions.txt" || name == "generated_predictions.txt" ||
         name.ends_with("_predictions.json") || name.ends_with("_null_odds.json") ||
         name == runs::kRunLogFile || name == "training_curves.png" ||
         (name.starts_with("predict_results") && name.ends_with(".txt"));
}

// Only once the new run can begin: what is wrong with its data or model must not cost the
// checkpoints of the old one. The results go too: what the new run does not write anew would pass
// for its own.
void clear_output_dir(const TrainingArguments& args) {
  if (!args.do_train || args.resume_from_checkpoint || !args.should_save()) return;
  for (const auto& dir : list_checkpoints(*args.output_dir)) remove_checkpoint(dir);
  if (!args.overwrite_output_dir) return;
  for (const auto& path : list_folder(*args.output_dir)) {
    std::error_code unknown;
    if (fs::is_regular_file(path, unknown) && is_result_of_a_run(path.filename().string()))
      fs::remove(path);
  }
}

// What is set besides the training arguments: the task, its model and data, and what only its
// trainer has.
nlohmann::json own_settings(Task& task) {
  OptionSet options;
  task.add_options(options);
  task.arguments().add_own_to(options);
  nlohmann::json settings = detail::shown_values(options);
  settings["task"] = task.name();
  return settings;
}

// What the metrics and predictions of all tasks rely on.
void check_evaluation(const TrainingArguments& args) {
  const auto refuse = [](const std::string& message, const std::string& advice) {
    throw Error("G-TASK-14", ErrorKind::usage, message, advice);
  };
  if (!args.eval_do_concat_batches)
    refuse(
        "--eval_do_concat_batches false: the metrics of a task need the rows of all batches "
        "together",
        "Leave it out; it is for metrics of one's own.");
  if (args.prediction_loss_only && args.do_predict)
    refuse("--prediction_loss_only leaves nothing for --do_predict to write", "Leave one out.");
}

[[noreturn]] void refuse_dropped_batches(const char* what, const TrainingArguments& args) {
  throw Error(
      "G-TASK-14", ErrorKind::usage,
      fmt::format("--dataloader_drop_last leaves nothing to {}: there are fewer rows than a "
                  "batch has (--per_device_eval_batch_size {})",
                  what, args.per_device_eval_batch_size),
      "Leave it out, or lower --per_device_eval_batch_size.");
}

// Python finds out after the training, and then in an array that is None.
void check_dropped_batches(const PreparedTask& prepared, const TrainingArguments& args) {
  if (!args.dataloader_drop_last || prepared.makes_rows) return;
  const auto too_few = [&](std::optional<int64_t> rows) {
    return rows && *rows < args.eval_batch_size();
  };
  if (args.do_eval && too_few(prepared.trainer.eval_dataset.single().size()))
    refuse_dropped_batches("evaluate on", args);
  if (args.do_predict && prepared.predict_dataset && too_few(prepared.predict_dataset.size()))
    refuse_dropped_batches("predict on", args);
}

// Several processes may have no batch where one would.
const PredictionOutput& with_predictions(const PredictionOutput& output,
                                         const TrainingArguments& args) {
  if (output.prediction_parts.empty()) refuse_dropped_batches("predict on", args);
  return output;
}

void train_stage(Trainer& trainer, const TrainingArguments& args, std::optional<int64_t> rows,
                 TaskResult& result) {
  auto output = trainer.train(
      args.resume_from_checkpoint ? Resume::parse(*args.resume_from_checkpoint) : Resume::none());
  result.global_step = output.global_step;
  for (const auto& callback : trainer.callbacks())
    if (const auto* interrupt = dynamic_cast<const InterruptCallback*>(callback.get()))
      result.interrupted_by = std::max(result.interrupted_by, interrupt->received());
  if (result.interrupted_by != 0) return;
  trainer.save_model();
  if (rows) output.metrics["train_samples"] = double(*rows);
  trainer.log_metrics("train", output.metrics);
  trainer.save_metrics("train", output.metrics);
  trainer.save_state();
  result.metrics["train"] = std::move(output.metrics);
}

Metrics eval_stage(Trainer& trainer, const PreparedTask& prepared, std::optional<int64_t> rows) {
  log_info("*** Evaluate ***");
  auto metrics = prepared.evaluate ? prepared.evaluate(trainer) : trainer.evaluate();
  if (rows) metrics["eval_samples"] = double(*rows);
  if (prepared.finish_eval_metrics) prepared.finish_eval_metrics(metrics);
  trainer.log_metrics("eval", metrics);
  for (const auto& further : prepared.further_sets) {
    if (!further.eval_dataset) continue;
    Metrics named;
    for (const auto& [key, value] : trainer.evaluate(further.eval_dataset))
      named[key + further.suffix] = value;
    if (const auto count = further.eval_dataset.size())
      named["eval_samples" + further.suffix] = double(*count);
    trainer.log_metrics("eval", named);
    metrics.merge(named);
  }
  trainer.save_metrics("eval", metrics);
  return metrics;
}

bool is_speed_key(const std::string& key) {
  return key.ends_with("_runtime") || key.ends_with("_per_second") || key.ends_with("_time");
}

Metrics predict_stage(Trainer& trainer, const PreparedTask& prepared, const fs::path& folder) {
  if (!prepared.predict_dataset)
    throw Error("G-TASK-3", ErrorKind::usage,
                "do_predict is set, but there is no data to predict on",
                "Give --test_file (or the task's own flag for it).");
  log_info("*** Predict ***");
  auto output = prepared.predict ? prepared.predict(trainer)
                                 : trainer.predict(prepared.predict_dataset, {}, "predict");
  if (!prepared.predict_has_labels)
    std::erase_if(output.metrics, [](const auto& entry) { return !is_speed_key(entry.first); });
  if (const auto rows = prepared.predict_dataset.size())
    output.metrics["predict_samples"] = double(*rows);
  if (prepared.finish_predict_metrics) prepared.finish_predict_metrics(output.metrics);
  if (prepared.report_predict_metrics) {
    trainer.log_metrics("predict", output.metrics);
    trainer.save_metrics("predict", output.metrics);
  }
  const bool writes = trainer.is_world_process_zero();
  if (prepared.write_predictions) {
    const auto& whole = with_predictions(output, trainer.args());
    if (writes) prepared.write_predictions(whole, folder);
  }
  for (const auto& further : prepared.further_sets) {
    if (!further.predict_dataset) continue;
    const auto found = trainer.predict(further.predict_dataset, {}, "predict");
    const auto& whole = with_predictions(found, trainer.args());
    if (writes) further.write_predictions(whole, folder);
  }
  return output.metrics;
}

}  // namespace

void check_run_start(const TrainingArguments& args) {
  check_output_dir(args);
  if (args.do_train && args.resume_from_checkpoint)
    find_resume(Resume::parse(*args.resume_from_checkpoint), *args.output_dir);
}

TaskResult run_task(Task& task, const TrainingArguments& args, bool handle_signals,
                    const std::vector<CallbackHandle>& callbacks) {
  task.arguments().set_common(args);
  task.check(args);
  check_evaluation(args);
  make_directory(*args.output_dir);
  const auto lock = args.do_train && args.should_save() ? RunLock(*args.output_dir) : RunLock();
  check_output_dir(args);
  device::seed_all(args.seed);  // fresh weights are drawn while the task prepares
  auto prepared = task.prepare(args);
  auto all = std::move(prepared.trainer.callbacks);
  all.insert(all.end(), callbacks.begin(), callbacks.end());
  all.push_back(std::make_shared<RunLogCallback>(own_settings(task)));
  if (handle_signals && args.do_train) all.push_back(std::make_shared<InterruptCallback>());
  if (prepared.run) {
    clear_output_dir(args);
    return prepared.run(all);
  }
  prepared.trainer.args = args;
  prepared.trainer.callbacks = std::move(all);
  const auto train_rows = prepared.trainer.train_dataset.size();
  const auto eval_rows = prepared.trainer.eval_dataset.single().size();
  if (args.do_train && train_rows == 0)
    throw Error("G-TASK-10", ErrorKind::data, "there is no row to train on",
                "Give more data, or leave less of it for the evaluation.");
  check_dropped_batches(prepared, args);
  const auto trainer =
      prepared.make_trainer
          ? prepared.make_trainer(std::move(prepared.trainer))
          : find_trainer(task.trainer()).make(std::move(prepared.trainer), task.arguments());

  TaskResult result;
  if (args.do_train) {
    clear_output_dir(args);
    train_stage(*trainer, args, train_rows, result);
    if (result.interrupted_by != 0) return result;
  }
  if (args.do_eval) result.metrics["eval"] = eval_stage(*trainer, prepared, eval_rows);
  if (args.do_predict)
    result.metrics["predict"] = predict_stage(*trainer, prepared, *args.output_dir);
  if (args.do_train) trainer->create_model_card();
  return result;
}

}  // namespace gradus
