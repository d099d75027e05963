#include "train/callback_list.h"

#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <algorithm>

#include "core/type_name.h"

namespace gradus {
namespace {

void call_one(TrainerCallback& callback, Event event, const TrainingArguments& args,
              TrainerState& state, TrainerControl& control, const CallbackContext& at) {
  switch (event) {
#define GRADUS_EVENT(name) \
  case Event::name: callback.on_##name(args, state, control, at); break;
    GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT
  }
}

}  // namespace

void CallbackList::add(CallbackHandle handle) {
  if (handle.get() == nullptr)
    throw Error("G-TRAIN-9", ErrorKind::usage, "add_callback received no callback",
                "Pass a std::make_shared<YourCallback>(…).");
  const auto name = handle->name();
  for (const auto& other : callbacks_)
    if (name != "FunctionCallback" && have_same_type(*other, *handle.get()) &&
        other->name() == name)  // trackers are of one type and have names of their own
      log_warning("A callback of type " + name + " was already added; now there are two.");
  callbacks_.push_back(handle.get());
  handles_.push_back(std::move(handle));
}

std::shared_ptr<TrainerCallback> CallbackList::pop(const std::string& name) {
  for (const auto& callback : std::vector(callbacks_))
    if (callback->name() == name && remove(callback)) return callback;
  return nullptr;
}

bool CallbackList::remove(const std::shared_ptr<TrainerCallback>& callback) {
  std::erase_if(handles_, [&](const auto& handle) { return handle.get() == callback; });
  return std::erase(callbacks_, callback) > 0;
}

bool CallbackList::listens_to(Event event) const {
  return std::any_of(handles_.begin(), handles_.end(),
                     [&](const auto& handle) { return handle.listens_to(event); });
}

void CallbackList::call(Event event, const TrainingArguments& args, TrainerState& state,
                        TrainerControl& control, const CallbackContext& at) const {
  for (size_t i = 0; i < handles_.size(); ++i) {  // by index: a callback may add another
    if (!handles_[i].listens_to(event)) continue;
    const auto callback = handles_[i].get();  // and may take itself out
    call_one(*callback, event, args, state, control, at);
  }
}

}  // namespace gradus
