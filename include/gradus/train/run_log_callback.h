#pragma once

#include <gradus/train/callback.h>

#include <memory>

namespace gradus {

class LogSink;

namespace runs {
class RunLogWriter;
}

/// Writes `output_dir`/run_log.jsonl while a run is under way: settings, log entries, progress, the
/// use of the machine, and what the library says. `gradus watch`, `gradus serve` and `gradus
/// report` read it.
///
/// `gradus train` always adds it. In a program of your own:
///
///     trainer.add_callback(std::make_shared<gradus::RunLogCallback>());
///
/// Only the first process writes. Between two log entries a line is written every two seconds; a
/// step costs a look at the clock. A disk that is full costs the file, not the run. Nothing of the
/// run depends on it, and a checkpoint keeps nothing of it.
class RunLogCallback : public TrainerCallback {
 public:
  /// `settings` are shown beside the training arguments: model, data.
  explicit RunLogCallback(nlohmann::json settings = nullptr);
  /// Gives the log sink back.
  ~RunLogCallback() override;

  /// Notes settings and process, and from here on what the library says.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Notes the progress, now and then.
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  /// Shows in a long evaluation that the run is alive.
  void on_prediction_step(const TrainingArguments&, TrainerState&, TrainerControl&,
                          const CallbackContext&) override;
  /// Notes the entry. Before training has begun nothing is noted: `gradus eval` leaves no trace.
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
  /// Notes the best checkpoint when there is a new one.
  void on_save(const TrainingArguments&, TrainerState&, TrainerControl&,
               const CallbackContext&) override;
  /// Notes how training ended.
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

 private:
  class Listener;

  void note_best(const TrainerState& state);
  void stop_listening();

  nlohmann::json settings_;
  std::shared_ptr<runs::RunLogWriter> writer_;
  std::shared_ptr<LogSink> listener_, before_;
  std::string best_;
};

}  // namespace gradus
