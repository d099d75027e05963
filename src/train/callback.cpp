#include <gradus/core/error.h>
#include <gradus/train/callback.h>

#include <array>

#include "core/type_name.h"

namespace gradus {
namespace {

constexpr std::array<const char*, size_t(kEventCount)> kEventNames = {
#define GRADUS_EVENT(name) "on_" #name,
    GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT
};

bool counts_steps(Event event) {
  return event == Event::step_end || event == Event::step_begin ||
         event == Event::pre_optimizer_step || event == Event::optimizer_step;
}

class FunctionCallback : public TrainerCallback {
 public:
  FunctionCallback(Event event, Every cadence, EventFunction function)
      : event_(event), cadence_(cadence), function_(std::move(function)) {}

  std::string name() const override { return "FunctionCallback"; }

#define GRADUS_EVENT(event)                                                               \
  void on_##event(const TrainingArguments&, TrainerState& state, TrainerControl& control, \
                  const CallbackContext& at) override {                                   \
    fire(Event::event, state, control, at);                                               \
  }
  GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT

 private:
  void fire(Event event, const TrainerState& state, TrainerControl& control,
            const CallbackContext& at) {
    if (event != event_) return;
    const int64_t count = counts_steps(event) ? state.global_step : ++occurrences_;
    if (count % cadence_.n == 0) function_(at, control);
  }

  Event event_;
  Every cadence_;
  EventFunction function_;
  int64_t occurrences_ = 0;
};

}  // namespace

const char* event_name(Event event) { return kEventNames.at(size_t(event)); }

std::string TrainerCallback::name() const { return unqualified_name_of(*this); }

Every every(int64_t n) {
  if (n < 1)
    throw Error("G-TRAIN-1", ErrorKind::usage,
                "every(" + std::to_string(n) + "): expected a count of at least 1",
                "Use every(1) for each time.");
  return {n};
}

CallbackHandle make_callback(Event event, Every cadence, EventFunction function) {
  if (!function)
    throw Error(
        "G-TRAIN-9", ErrorKind::usage,
        std::string("a function for ") + event_name(event) + " was expected, an empty one received",
        "Pass a lambda that takes (const CallbackContext&, TrainerControl&).");
  cadence = every(cadence.n);
  return {std::make_shared<FunctionCallback>(event, cadence, std::move(function)),
          EventSet().set(size_t(event))};
}

}  // namespace gradus
