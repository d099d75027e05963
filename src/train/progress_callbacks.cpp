#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/data/data_loader.h>
#include <gradus/trackers/progress_bar.h>
#include <gradus/train/callbacks.h>

namespace gradus {

ProgressCallback::ProgressCallback() = default;
ProgressCallback::~ProgressCallback() = default;

void ProgressCallback::on_train_begin(const TrainingArguments&, TrainerState& state,
                                      TrainerControl&, const CallbackContext&) {
  if (state.is_world_process_zero)
    training_bar_ = std::make_unique<ProgressBar>(
        ProgressBarOptions{.total = state.max_steps, .initial = state.global_step});
}

void ProgressCallback::on_step_end(const TrainingArguments&, TrainerState& state, TrainerControl&,
                                   const CallbackContext&) {
  if (training_bar_) training_bar_->update(state.global_step - training_bar_->done());
}

void ProgressCallback::on_prediction_step(const TrainingArguments&, TrainerState& state,
                                          TrainerControl&, const CallbackContext& at) {
  const auto batches = at.eval_dataloader != nullptr ? at.eval_dataloader->size() : std::nullopt;
  if (!state.is_world_process_zero || !batches) return;
  if (!prediction_bar_)
    prediction_bar_ = std::make_unique<ProgressBar>(
        ProgressBarOptions{.total = *batches, .description = "evaluating"});
  prediction_bar_->update();
}

void ProgressCallback::on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                                   const CallbackContext&) {
  prediction_bar_.reset();
}
void ProgressCallback::on_predict(const TrainingArguments&, TrainerState&, TrainerControl&,
                                  const CallbackContext&) {
  prediction_bar_.reset();
}

void ProgressCallback::on_log(const TrainingArguments&, TrainerState& state, TrainerControl&,
                              const CallbackContext& at) {
  if (!state.is_world_process_zero || !training_bar_) return;
  if (const auto loss = at.logs.find("loss"); loss != at.logs.end())
    training_bar_->set_postfix(fmt::format("loss={:.4g}", loss->second));
  prediction_bar_.reset();
  training_bar_->write(format_logs(at.logs));
}

void ProgressCallback::on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                                    const CallbackContext&) {
  prediction_bar_.reset();
  training_bar_.reset();
}

void PrinterCallback::on_log(const TrainingArguments&, TrainerState& state, TrainerControl&,
                             const CallbackContext& at) {
  if (state.is_local_process_zero) log_print(format_logs(at.logs) + "\n");
}

}  // namespace gradus
