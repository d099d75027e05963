#include "tasks/functional_events.h"

#include <ATen/ops/scalar_tensor.h>
#include <gradus/train/callbacks.h>

#include <algorithm>

#include "functional/processes.h"

namespace gradus::tasks {

FunctionalEvents::FunctionalEvents(const TrainingArguments& args, std::shared_ptr<Model> model,
                                   const std::vector<CallbackHandle>& callbacks)
    : args_(args), model_(std::move(model)) {
  for (const auto& name : args_.report_to.words())
    callbacks_.add(std::make_shared<TrackerCallback>(name, make_tracker(name, *args_.output_dir)));
  for (const auto& callback : callbacks) callbacks_.add(callback);
  if (args_.disable_tqdm.value_or(false)) callbacks_.add(std::make_shared<PrinterCallback>());
  state_.is_local_process_zero = args_.local_process_index() == 0;
  state_.is_world_process_zero = args_.process_index() == 0;
}

void FunctionalEvents::begin_training(TrainerState state, int64_t steps_of_epoch) {
  state.is_local_process_zero = state_.is_local_process_zero;
  state.is_world_process_zero = state_.is_world_process_zero;
  state_ = std::move(state);
  steps_of_epoch_ = steps_of_epoch;
  call(Event::train_begin);
}

void FunctionalEvents::log(const std::map<std::string, double>& values, int64_t step) {
  state_.global_step = step;
  logs_ = values;
  state_.log_history.push_back(log_entry(logs_, step));
  call(Event::log);
  if (!values.contains("eval_loss")) return;
  metrics_ = values;
  call(Event::evaluate);
}

bool FunctionalEvents::ends_after(int64_t step) {
  state_.global_step = step;
  state_.epoch = double(step) / double(steps_of_epoch_);
  control_.new_step();
  call(Event::step_end);
  return control_.should_training_stop;
}

void FunctionalEvents::saved() { call(Event::save); }

int FunctionalEvents::interrupted_by() {
  if (const auto group = functional::processes())
    for (const auto& each : group->gather(at::scalar_tensor(control_.interrupted_by, at::kInt)))
      control_.interrupted_by = std::max(control_.interrupted_by, each.item<int>());
  control_.is_interrupted = control_.interrupted_by != 0;
  return control_.interrupted_by;
}

void FunctionalEvents::end_training(const std::string& exception) {
  call(Event::train_end, exception);
}

void FunctionalEvents::call(Event event, const std::string& exception) {
  const CallbackContext at{.state = state_,
                           .logs = logs_,
                           .metrics = metrics_,
                           .model = model_.get(),
                           .exception = exception};
  callbacks_.call(event, args_, state_, control_, at);
}

}  // namespace gradus::tasks
