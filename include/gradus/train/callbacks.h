#pragma once

#include <gradus/train/callback.h>

#include <vector>

namespace gradus {

class Tracker;
class ProgressBar;

/// Asks for logs, evaluations, saves and the end at the times the arguments say.
class DefaultFlowCallback : public TrainerCallback {
 public:
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  void on_epoch_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;
};

/// A bar for training and one for evaluation, and the logs as lines between.
class ProgressCallback : public TrainerCallback {
 public:
  ProgressCallback();
  ~ProgressCallback() override;
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  void on_prediction_step(const TrainingArguments&, TrainerState&, TrainerControl&,
                          const CallbackContext&) override;
  void on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  void on_predict(const TrainingArguments&, TrainerState&, TrainerControl&,
                  const CallbackContext&) override;
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

 private:
  std::unique_ptr<ProgressBar> training_bar_;
  std::unique_ptr<ProgressBar> prediction_bar_;
};

/// Prints every log as one line (used with `disable_tqdm`).
class PrinterCallback : public TrainerCallback {
 public:
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
};

/// Stops when `metric_for_best_model` has not improved by more than the threshold for `patience`
/// evaluations.
class EarlyStoppingCallback : public TrainerCallback {
 public:
  explicit EarlyStoppingCallback(int64_t early_stopping_patience = 1,
                                 double early_stopping_threshold = 0.0);
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  nlohmann::json state_dict() const override;
  void load_state_dict(const nlohmann::json& state) override;
  bool is_exportable() const override { return true; }

  int64_t patience() const { return patience_; }
  double threshold() const { return threshold_; }
  int64_t patience_counter() const { return counter_; }

 private:
  int64_t patience_;
  double threshold_;
  int64_t counter_ = 0;
};

/// Saves and stops at the next step after a signal: SIGTERM by default, more for the command line.
///
/// The handlers are installed in on_train_begin and the former ones put back in on_train_end. A
/// second signal acts as if the callback were not there.
class InterruptCallback : public TrainerCallback {
 public:
  /// Throws `Error` G-TRAIN-18 for a signal that does not exist or cannot be caught.
  explicit InterruptCallback(std::vector<int> signals, double grace_seconds = 0);
  ~InterruptCallback() override;
  std::string name() const override { return "InterruptCallback"; }
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  void on_epoch_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

  /// The signal that stopped the run, or 0.
  int received() const { return stopped_by_; }

 private:
  void restore_handlers();
  void ask(TrainerControl& control);

  std::vector<int> signals_;
  double grace_seconds_;
  int stopped_by_ = 0;
  bool installed_ = false;
};

/// `enable_jit_checkpoint`: SIGTERM, after the grace period that tells it from SIGKILL.
class JITCheckpointCallback : public InterruptCallback {
 public:
  explicit JITCheckpointCallback(double kill_wait_seconds = 3.0);
  std::string name() const override { return "JITCheckpointCallback"; }
};

/// Keeps an exponential moving average of the weights; evaluation inside training uses it, a
/// checkpoint keeps it.
///
/// The model itself goes on with its own weights, as what training is resumed from: checkpoints,
/// `save_model()` and `load_best_model_at_end` have those. `swap(trainer.model())` after `train()`
/// puts the average in their place, to be evaluated, saved or used; with `load_best_model_at_end`
/// the average is that of the last step.
class EmaCallback : public TrainerCallback {
 public:
  explicit EmaCallback(double decay = 0.999);
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override;
  StateTree tensor_state() const override;
  void load_tensor_state(const StateTree& state) override;

  /// Exchanges the averaged weights with the model's; a second call undoes it. Throws `Error`
  /// G-TRAIN-3 when there is no average of that model.
  void swap(Model& model);
  bool has_average() const { return !average_.empty(); }
  bool has_evaluation_weights() const override { return has_average(); }
  void swap_weights(Model& model) override { swap(model); }

 private:
  double decay_;
  std::vector<torch::Tensor> average_;
  std::vector<torch::Tensor> parameters_;
  bool restored_ = false;  ///< by a resume, for the run that begins next
};

/// Adds `tokens_per_second` (and `mfu` when the device's peak is given) to every training log in
/// `log_history`; callbacks that were added before it do not see them in their `on_log`.
class ThroughputCallback : public TrainerCallback {
 public:
  /// `peak_flops`: what the device could do per second in the precision used; 0 leaves `mfu` out.
  explicit ThroughputCallback(double peak_flops = 0);
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;

  double tokens_per_second() const { return tokens_per_second_; }
  double mfu() const { return mfu_; }

 private:
  double peak_flops_;
  double last_time_ = 0;
  double last_flos_ = 0;
  int64_t last_tokens_ = 0;
  double tokens_per_second_ = 0;
  double mfu_ = 0;
};

/// Hands arguments and logs to a tracker (`report_to`).
class TrackerCallback : public TrainerCallback {
 public:
  TrackerCallback(std::string name, std::shared_ptr<Tracker> tracker);
  std::string name() const override { return name_; }
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
              const CallbackContext&) override;
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext&) override;

 private:
  std::string name_;
  std::shared_ptr<Tracker> tracker_;
  bool begun_ = false;
};

/// "{'loss': '0.1234', 'epoch': '1'}": a log as HF prints it, floats with four significant digits.
std::string format_logs(const Logs& logs);

}  // namespace gradus
