#pragma once

#include <gradus/train/callback.h>

#include <vector>

namespace gradus {

class Tracker;
class ProgressBar;

/// Asks for logs, evaluations and checkpoints at the intervals of the arguments, and for the end at
/// `max_steps`. The Trainer always adds it.
class DefaultFlowCallback : public TrainerCallback {
 public:
  /// Asks for what is due after this step.
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  /// Asks for what is due after this epoch.
  void on_epoch_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;
};

/// Shows a progress bar for training and one for evaluation, with the logs as lines between them.
/// The Trainer adds it unless `disable_tqdm` is set.
class ProgressCallback : public TrainerCallback {
 public:
  /// Bars are created when training or an evaluation begins.
  ProgressCallback();
  ~ProgressCallback() override;
  /// Starts the bar of the run.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Advances the bar.
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  /// Starts or advances the bar of the evaluation.
  void on_prediction_step(const TrainingArguments&, TrainerState&, TrainerControl&,
                          const CallbackContext&) override;
  /// Ends the bar of the evaluation.
  void on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  /// Ends the bar of the prediction.
  void on_predict(const TrainingArguments&, TrainerState&, TrainerControl&,
                  const CallbackContext&) override;
  /// Prints the log as a line above the bar.
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
  /// Ends the bar of the run.
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

 private:
  std::unique_ptr<ProgressBar> training_bar_;
  std::unique_ptr<ProgressBar> prediction_bar_;
};

/// Prints every log as one line. The Trainer adds it when `disable_tqdm` is set.
class PrinterCallback : public TrainerCallback {
 public:
  /// Prints the log as a line.
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
};

/// Stops when `metric_for_best_model` has not improved by more than the threshold for `patience`
/// evaluations. Training then throws `Error` G-TRAIN-2 at its start unless that metric and an
/// `eval_strategy` are set.
class EarlyStoppingCallback : public TrainerCallback {
 public:
  /// `early_stopping_patience` evaluations without improvement end the run.
  explicit EarlyStoppingCallback(int64_t early_stopping_patience = 1,
                                 double early_stopping_threshold = 0.0);
  /// Checks the options. Throws `Error` G-TRAIN-2.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Counts, and asks to stop when the patience is used up.
  void on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  nlohmann::json state_dict() const override;
  void load_state_dict(const nlohmann::json& state) override;
  bool is_exportable() const override { return true; }

  /// Evaluations without improvement that end the run.
  int64_t patience() const { return patience_; }
  /// Least improvement that counts.
  double threshold() const { return threshold_; }
  /// Evaluations without improvement so far.
  int64_t patience_counter() const { return counter_; }

 private:
  int64_t patience_;
  double threshold_;
  int64_t counter_ = 0;
};

/// Saves a checkpoint and stops after the current step when a signal arrives. The next start with
/// `Resume::last()` continues from there:
///
///     trainer.add_callback(std::make_shared<InterruptCallback>());
///
/// An evaluation during training stops after the current batch; the resumed run repeats it.
/// `on_train_begin` installs the handlers and `on_train_end` restores the former ones. A signal
/// that the process ignores stays ignored, as after `nohup`. The first signal is confirmed in the
/// log. Another one within a second is taken for the same request, also when the run has ended by
/// then, because `timeout` and terminals send it twice; after that it has its usual effect.
class InterruptCallback : public TrainerCallback {
 public:
  /// Reacts to Ctrl-C (SIGINT), to SIGTERM and to SIGHUP.
  InterruptCallback();
  /// Reacts `grace_seconds` after the first of `signals`. Throws `Error` G-TRAIN-18 for a signal
  /// that does not exist or cannot be caught.
  explicit InterruptCallback(std::vector<int> signals, double grace_seconds = 0);
  ~InterruptCallback() override;
  std::string name() const override { return "InterruptCallback"; }
  /// Installs the signal handlers.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Asks to save and stop after a signal.
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  /// The same, at the end of an epoch.
  void on_epoch_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;
  /// The same, after a batch of an evaluation.
  void on_prediction_step(const TrainingArguments&, TrainerState&, TrainerControl&,
                          const CallbackContext&) override;
  /// Restores the former signal handlers.
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

  /// The signal that stopped the run, in this process or in another one; 0 when none did.
  int received() const { return stopped_by_; }

 private:
  void restore_handlers();
  void ask(TrainerControl& control);

  std::vector<int> signals_;
  double grace_seconds_;
  int stopped_by_ = 0;
  bool installed_ = false;
  std::vector<int> caught_;  ///< The signals whose handlers it has replaced.
};

/// The option `enable_jit_checkpoint`: saves and stops a few seconds after SIGTERM.
class JITCheckpointCallback : public InterruptCallback {
 public:
  /// Waits `kill_wait_seconds` after the signal, as transformers does.
  explicit JITCheckpointCallback(double kill_wait_seconds = 3.0);
  std::string name() const override { return "JITCheckpointCallback"; }
};

/// Keeps an exponential moving average of the weights. Evaluations during training use it, and
/// checkpoints keep it.
///
/// Training, checkpoints, `save_model()` and `load_best_model_at_end` use the model's own weights.
/// `swap(trainer.model())` after `train()` replaces them by the average, to evaluate, save or use
/// it. With `load_best_model_at_end` the average is still that of the last step.
class EmaCallback : public TrainerCallback {
 public:
  /// average = decay · average + (1 - decay) · weights, after every step. Throws `Error`
  /// G-TRAIN-3 for a decay outside [0, 1).
  explicit EmaCallback(double decay = 0.999);
  /// Starts the average with the current weights, unless a resume restored it.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Updates the average.
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  StateTree tensor_state() const override;
  void load_tensor_state(const StateTree& state) override;

  /// Exchanges the average and the model's weights; a second call undoes it. Throws `Error`
  /// G-TRAIN-3 when there is no average of that model.
  void swap(Model& model);
  /// Whether there is an average, which is so from the first step on.
  bool has_average() const { return !average_.empty(); }
  bool has_evaluation_weights() const override { return has_average(); }
  void swap_weights(Model& model) override { swap(model); }

 private:
  double decay_;
  std::vector<torch::Tensor> average_;
  std::vector<torch::Tensor> parameters_;
  bool restored_ = false;  ///< By a resume, for the next run.
};

/// Adds `tokens_per_second` to every training log in `log_history`, and `mfu` when the device's
/// peak is given. Callbacks that were added before it do not see them in their `on_log`.
class ThroughputCallback : public TrainerCallback {
 public:
  /// `peak_flops` is what the device can compute per second in the precision of the run; 0 leaves
  /// `mfu` out.
  explicit ThroughputCallback(double peak_flops = 0);
  /// Starts the clock.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Adds the values to the log.
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;

  /// The last value.
  double tokens_per_second() const { return tokens_per_second_; }
  /// The last value; 0 without `peak_flops`.
  double mfu() const { return mfu_; }

 private:
  double peak_flops_;
  double last_time_ = 0;
  double last_flos_ = 0;
  int64_t last_tokens_ = 0;
  double tokens_per_second_ = 0;
  double mfu_ = 0;
};

/// Passes arguments and logs to a tracker (`report_to`).
class TrackerCallback : public TrainerCallback {
 public:
  /// `name` is what `report_to` calls the tracker. Shares `tracker`.
  TrackerCallback(std::string name, std::shared_ptr<Tracker> tracker);
  /// As transformers' class: "TensorBoardCallback"; for others the tracker's name and "Callback".
  std::string name() const override;
  /// Gives arguments, config and number of parameters to the tracker.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  /// Gives the log to the tracker.
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
  /// Gives histograms of weights and gradients to a tracker that shows them, every
  /// `log_histograms` steps. Waits for the device.
  void on_optimizer_step(const TrainingArguments&, TrainerState&, TrainerControl&,
                         const CallbackContext&) override;
  /// Gives the metrics of a prediction to the tracker.
  void on_predict(const TrainingArguments&, TrainerState&, TrainerControl&,
                  const CallbackContext&) override;
  /// Finishes the tracker.
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

 private:
  /// Tells the tracker about the run, the first time.
  void begin(const TrainingArguments& args, const CallbackContext& at);

  std::string name_;
  std::shared_ptr<Tracker> tracker_;
  bool begun_ = false;
};

/// A log as transformers prints it, with four significant digits: "{'loss': '0.1234', 'epoch':
/// '1'}".
std::string format_logs(const Logs& logs);

}  // namespace gradus
