#include <gradus/config/training_arguments.h>
#include <gradus/core/log.h>
#include <gradus/models/model.h>
#include <gradus/train/run_log_callback.h>

#include <set>

#include "runs/run_log_writer.h"
#include "runs/run_reader.h"

namespace gradus {

/// Passes everything on to the sink that was there, and notes messages.
class RunLogCallback::Listener : public LogSink {
 public:
  Listener(std::shared_ptr<LogSink> next, std::weak_ptr<runs::RunLogWriter> writer)
      : next_(std::move(next)), writer_(std::move(writer)) {}

  void message(LogLevel level, std::string_view line) override {
    next_->message(level, line);
    if (const auto writer = writer_.lock(); writer && level >= LogLevel::info)
      writer->message(level == LogLevel::info      ? "info"
                      : level == LogLevel::warning ? "warning"
                                                   : "error",
                      line);
  }
  void print(std::string_view text) override { next_->print(text); }
  bool is_terminal() const override { return next_->is_terminal(); }
  std::optional<int> columns() const override { return next_->columns(); }

 private:
  std::shared_ptr<LogSink> next_;
  std::weak_ptr<runs::RunLogWriter> writer_;
};

RunLogCallback::RunLogCallback(nlohmann::json settings) : settings_(std::move(settings)) {}
RunLogCallback::~RunLogCallback() { stop_listening(); }

void RunLogCallback::on_train_begin(const TrainingArguments& args, TrainerState& state,
                                    TrainerControl&, const CallbackContext& at) {
  if (!state.is_world_process_zero) return;
  if (!writer_)
    writer_ = std::make_shared<runs::RunLogWriter>(std::filesystem::path(*args.output_dir) /
                                                   runs::kRunLogFile);
  runs::RunStart start{.settings = args.to_dict(),
                       .model = at.model != nullptr ? at.model->config() : nlohmann::json(nullptr),
                       .step = state.global_step,
                       .max_steps = state.max_steps};
  if (settings_.is_object()) start.settings.update(settings_);
  if (at.model != nullptr) {
    int64_t count = 0;
    std::set<const void*> counted;  // tied weights once
    for (const auto& parameter : at.model->parameters())
      if (counted.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
    start.parameters = count;
  }
  writer_->begin(start);
  stop_listening();
  before_ = log_sink();
  listener_ = std::make_shared<Listener>(before_, writer_);
  set_log_sink(listener_);
}

void RunLogCallback::stop_listening() {
  // A sink that somebody has set since stays.
  if (listener_ && log_sink() == listener_) set_log_sink(before_);
  listener_.reset();
  before_.reset();
}

void RunLogCallback::on_step_end(const TrainingArguments&, TrainerState& state, TrainerControl&,
                                 const CallbackContext&) {
  if (writer_ && state.is_world_process_zero) writer_->progress(state.global_step, state.epoch);
}

void RunLogCallback::on_prediction_step(const TrainingArguments&, TrainerState& state,
                                        TrainerControl&, const CallbackContext&) {
  if (writer_ && listener_ && state.is_world_process_zero)
    writer_->progress(state.global_step, state.epoch);
}

void RunLogCallback::on_log(const TrainingArguments&, TrainerState& state, TrainerControl&,
                            const CallbackContext& at) {
  if (writer_ && state.is_world_process_zero) writer_->entry(at.logs, state.global_step);
}

void RunLogCallback::note_best(const TrainerState& state) {
  if (!state.best_metric || !state.best_model_checkpoint) return;
  const auto name = std::filesystem::path(*state.best_model_checkpoint).filename().string();
  if (std::exchange(best_, name) != name) writer_->best(*state.best_metric, name);
}

void RunLogCallback::on_save(const TrainingArguments&, TrainerState& state, TrainerControl&,
                             const CallbackContext&) {
  if (writer_ && state.is_world_process_zero) note_best(state);
}

void RunLogCallback::on_train_end(const TrainingArguments&, TrainerState& state,
                                  TrainerControl& control, const CallbackContext& at) {
  if (!writer_ || !state.is_world_process_zero) return;
  note_best(state);
  stop_listening();
  if (!at.exception.empty())
    writer_->end("failed", at.exception);
  else
    writer_->end(control.is_interrupted ? "interrupted" : "finished");
}

}  // namespace gradus
