// The flow of a run, early stopping, throughput, and the bridge to trackers.
#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/models/model.h>
#include <gradus/trackers/tracker.h>
#include <gradus/train/callbacks.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "train/histogram.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string best_metric_key(const TrainingArguments& args) {
  const auto& name = args.metric_for_best_model.value_or("loss");
  return name.starts_with("eval_") ? name : "eval_" + name;
}

void DefaultFlowCallback::on_step_end(const TrainingArguments& args, TrainerState& state,
                                      TrainerControl& control, const CallbackContext&) {
  const auto is_multiple = [&](int64_t steps) {
    return steps > 0 && state.global_step % steps == 0;
  };
  const bool may_evaluate =
      args.eval_strategy == "steps" && args.eval_delay <= double(state.global_step);
  if (state.global_step == 1 && args.logging_first_step) control.should_log = true;
  if (args.logging_strategy == "steps" && is_multiple(state.logging_steps))
    control.should_log = true;
  if (may_evaluate && is_multiple(state.eval_steps)) control.should_evaluate = true;
  if (args.save_strategy == "steps" && is_multiple(state.save_steps)) control.should_save = true;
  if (state.global_step < state.max_steps) return;
  control.should_training_stop = true;
  if (may_evaluate) control.should_evaluate = true;
  if (args.save_strategy == "steps") control.should_save = true;
}

void DefaultFlowCallback::on_epoch_end(const TrainingArguments& args, TrainerState& state,
                                       TrainerControl& control, const CallbackContext&) {
  if (args.logging_strategy == "epoch") control.should_log = true;
  if (args.eval_strategy == "epoch" && args.eval_delay <= state.epoch)
    control.should_evaluate = true;
  if (args.save_strategy == "epoch") control.should_save = true;
}

EarlyStoppingCallback::EarlyStoppingCallback(int64_t early_stopping_patience,
                                             double early_stopping_threshold)
    : patience_(early_stopping_patience), threshold_(early_stopping_threshold) {}

void EarlyStoppingCallback::on_train_begin(const TrainingArguments& args, TrainerState&,
                                           TrainerControl&, const CallbackContext&) {
  if (!args.metric_for_best_model)
    throw Error("G-TRAIN-2", ErrorKind::usage,
                "EarlyStoppingCallback needs metric_for_best_model, which is not set",
                "Set --metric_for_best_model, for example to loss.");
  if (args.eval_strategy == "no")
    throw Error("G-TRAIN-2", ErrorKind::usage,
                "EarlyStoppingCallback needs evaluations, but eval_strategy is 'no'",
                "Set --eval_strategy to steps or epoch.");
  if (!args.load_best_model_at_end)
    log_warning(
        "EarlyStoppingCallback without load_best_model_at_end: the best model will not be loaded "
        "at the end.");
}

void EarlyStoppingCallback::on_evaluate(const TrainingArguments& args, TrainerState& state,
                                        TrainerControl& control, const CallbackContext& at) {
  const auto key = best_metric_key(args);
  const auto metric = at.metrics.find(key);
  if (metric == at.metrics.end()) {
    log_warning("Early stopping uses " + key +
                ", which this evaluation did not return: it is turned off.");
    return;
  }
  const double value = metric->second;
  const bool greater = args.greater_is_better.value_or(false);
  const bool better =
      !state.best_metric || ((greater ? value > *state.best_metric : value < *state.best_metric) &&
                             std::abs(value - *state.best_metric) > threshold_);
  counter_ = better ? 0 : counter_ + 1;
  if (counter_ >= patience_) control.should_training_stop = true;
}

nlohmann::json EarlyStoppingCallback::state_dict() const {
  return {
      {"args", {{"early_stopping_patience", patience_}, {"early_stopping_threshold", threshold_}}},
      {"attributes", {{"early_stopping_patience_counter", counter_}}}};
}

void EarlyStoppingCallback::load_state_dict(const nlohmann::json& state) {
  patience_ = state.at("args").value("early_stopping_patience", patience_);
  threshold_ = state.at("args").value("early_stopping_threshold", threshold_);
  counter_ = state.at("attributes").value("early_stopping_patience_counter", counter_);
}

ThroughputCallback::ThroughputCallback(double peak_flops) : peak_flops_(peak_flops) {}

void ThroughputCallback::on_train_begin(const TrainingArguments& args, TrainerState& state,
                                        TrainerControl&, const CallbackContext&) {
  if (args.include_num_input_tokens_seen == "no")
    log_warning(
        "ThroughputCallback counts tokens: set include_num_input_tokens_seen to all or "
        "non_padding.");
  last_time_ = now_seconds();
  last_tokens_ = state.num_input_tokens_seen;
  last_flos_ = state.total_flos;
}

void ThroughputCallback::on_log(const TrainingArguments&, TrainerState& state, TrainerControl&,
                                const CallbackContext& at) {
  if (!at.logs.contains("loss") || state.log_history.empty()) return;
  const double now = now_seconds();
  const double seconds = std::max(now - last_time_, 1e-9);
  tokens_per_second_ = double(state.num_input_tokens_seen - last_tokens_) / seconds;
  mfu_ = peak_flops_ > 0 ? (state.total_flos - last_flos_) / seconds / peak_flops_ : 0;
  state.log_history.back()["tokens_per_second"] = tokens_per_second_;
  if (peak_flops_ > 0) state.log_history.back()["mfu"] = mfu_;
  last_time_ = now;
  last_tokens_ = state.num_input_tokens_seen;
  last_flos_ = state.total_flos;
}

TrackerCallback::TrackerCallback(std::string name, std::shared_ptr<Tracker> tracker)
    : name_(std::move(name)), tracker_(std::move(tracker)) {}

std::string TrackerCallback::name() const {
  static const std::map<std::string, std::string> kNames = {{"tensorboard", "TensorBoard"},
                                                            {"wandb", "Wandb"},
                                                            {"mlflow", "MLflow"},
                                                            {"trackio", "Trackio"}};
  const auto known = kNames.find(name_);
  return (known != kNames.end() ? known->second : name_) + "Callback";
}

void TrackerCallback::begin(const TrainingArguments& args, const CallbackContext& at) {
  if (std::exchange(begun_, true)) return;
  auto described = nlohmann::json(args.to_dict());
  if (at.state.is_hyper_param_search) {
    described["trial_params"] = at.state.trial_params;
    if (at.state.trial_name) described["run_name"] = described["trial_name"] = *at.state.trial_name;
  }
  tracker_->begin(described, at.model != nullptr ? at.model->config() : nlohmann::json(nullptr));
  if (at.model == nullptr) return;
  int64_t count = 0;
  std::set<const void*> counted;  // tied weights once
  for (const auto& parameter : at.model->parameters())
    if (counted.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  tracker_->model_parameters(count);
}

void TrackerCallback::on_train_begin(const TrainingArguments& args, TrainerState& state,
                                     TrainerControl&, const CallbackContext& at) {
  if (!state.is_world_process_zero) return;
  // Every trial of a search is a run of its own, in a folder of its own.
  const auto known = tracker_names();
  if (state.is_hyper_param_search && std::find(known.begin(), known.end(), name_) != known.end())
    tracker_ = make_tracker(name_, *args.output_dir);
  begin(args, at);
  tracker_->training_begins(state.global_step);
}

void TrackerCallback::on_log(const TrainingArguments& args, TrainerState& state, TrainerControl&,
                             const CallbackContext& at) {
  if (!state.is_world_process_zero) return;
  begin(args, at);
  tracker_->log(at.logs, state.global_step);
}

void TrackerCallback::on_optimizer_step(const TrainingArguments& args, TrainerState& state,
                                        TrainerControl&, const CallbackContext& at) {
  const auto step = state.global_step + 1;  // it is counted later
  if (args.log_histograms <= 0 || step % args.log_histograms != 0) return;
  if (!state.is_world_process_zero || !tracker_->takes_histograms() || at.model == nullptr) return;
  for (const auto& parameter : at.model->named_parameters()) {
    const auto log = [&](const char* kind, const torch::Tensor& values) {
      if (!values.defined()) return;
      if (const auto histogram = histogram_of(values))
        tracker_->log_histogram(kind + parameter.key(), *histogram, step);
    };
    log("weights/", parameter.value());
    log("gradients/", parameter.value().grad());
  }
}

void TrackerCallback::on_predict(const TrainingArguments& args, TrainerState& state,
                                 TrainerControl&, const CallbackContext& at) {
  if (!state.is_world_process_zero) return;
  begin(args, at);
  tracker_->log_prediction(at.metrics, state.global_step);
}

void TrackerCallback::on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                                   const CallbackContext&) {
  if (begun_) tracker_->finish();
  begun_ = false;
}

}  // namespace gradus
