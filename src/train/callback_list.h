#pragma once

#include <gradus/train/callback.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// The callbacks of a Trainer, in the order they are called.
///
/// Thread-safety: none. A callback may add or remove callbacks while it is called.
class CallbackList {
 public:
  /// Adds one at the end. Throws `Error` G-TRAIN-9 for a null pointer; warns about a second one of
  /// a type.
  void add(CallbackHandle handle);
  /// Takes out the first one of that name; null when there is none.
  std::shared_ptr<TrainerCallback> pop(const std::string& name);
  /// Takes out this object; whether it was there.
  bool remove(const std::shared_ptr<TrainerCallback>& callback);

  /// Whether a callback is called at `event`.
  bool listens_to(Event event) const;
  /// Calls every callback that listens to `event`.
  void call(Event event, const TrainingArguments& args, TrainerState& state,
            TrainerControl& control, const CallbackContext& at) const;

  /// All of them, in order.
  const std::vector<std::shared_ptr<TrainerCallback>>& all() const { return callbacks_; }
  auto begin() const { return callbacks_.begin(); }
  auto end() const { return callbacks_.end(); }
  size_t size() const { return callbacks_.size(); }

 private:
  std::vector<std::shared_ptr<TrainerCallback>> callbacks_;
  std::vector<CallbackHandle> handles_;  // the same, with their events
};

}  // namespace gradus
