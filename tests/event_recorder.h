#pragma once

#include <gradus/train/callback.h>

namespace gradus::testing {

/// Writes down every event and what was asked for when it came.
class EventRecorder : public TrainerCallback {
 public:
#define GRADUS_RECORD(event)                                                        \
  void on_##event(const TrainingArguments&, TrainerState&, TrainerControl& control, \
                  const CallbackContext&) override {                                \
    note("on_" #event, control);                                                    \
  }
  GRADUS_RECORD(init_end)
  GRADUS_RECORD(train_begin)
  GRADUS_RECORD(train_end)
  GRADUS_RECORD(epoch_begin)
  GRADUS_RECORD(epoch_end)
  GRADUS_RECORD(step_begin)
  GRADUS_RECORD(pre_optimizer_step)
  GRADUS_RECORD(optimizer_step)
  GRADUS_RECORD(substep_end)
  GRADUS_RECORD(step_end)
  GRADUS_RECORD(evaluate)
  GRADUS_RECORD(predict)
  GRADUS_RECORD(save)
  GRADUS_RECORD(log)
  GRADUS_RECORD(prediction_step)
  GRADUS_RECORD(push_begin)
#undef GRADUS_RECORD

  std::vector<std::string> events;
  std::vector<TrainerControl> controls;

 private:
  void note(const char* event, const TrainerControl& control) {
    events.emplace_back(event);
    controls.push_back(control);
  }
};

}  // namespace gradus::testing
