#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/train/trainer_control.h>
#include <gradus/train/trainer_state.h>

#include <bitset>
#include <concepts>
#include <functional>
#include <memory>
#include <string>

namespace gradus {

class DataLoader;
class LRScheduler;
class Model;
class Optimizer;
struct TokenizerLike;

/// All events at which callbacks are called. The names are those of transformers without `on_`.
/// This is the only list: the enum, the names, the virtual functions and the calls are made from
/// it.
#define GRADUS_FOR_EACH_EVENT(DO) \
  DO(init_end)                    \
  DO(train_begin)                 \
  DO(train_end)                   \
  DO(epoch_begin)                 \
  DO(epoch_end)                   \
  DO(step_begin)                  \
  DO(pre_optimizer_step)          \
  DO(optimizer_step)              \
  DO(substep_end)                 \
  DO(step_end)                    \
  DO(evaluate)                    \
  DO(predict)                     \
  DO(save)                        \
  DO(log)                         \
  DO(prediction_step)             \
  DO(push_begin)

/// The events of a run that callbacks can listen to; see `TrainerCallback` for when each occurs.
enum class Event {
#define GRADUS_EVENT(name) name,
  GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT
};
#define GRADUS_EVENT(name) +1
/// Number of events.
constexpr int kEventCount = 0 GRADUS_FOR_EACH_EVENT(GRADUS_EVENT);
#undef GRADUS_EVENT
/// A set of events; the bit of an event is its number.
using EventSet = std::bitset<size_t(kEventCount)>;
/// The name of the callback function: "on_step_end" and so on.
const char* event_name(Event event);

/// What a callback can see. Pointers are null while the part does not exist. References and
/// pointers are valid only during the call.
struct CallbackContext {
  const TrainerState& state;  ///< The progress of the run.
  const Logs& logs;           ///< What is logged; for on_log.
  const Metrics& metrics;     ///< The metrics; for on_evaluate and on_predict.
  Model* model = nullptr;     ///< The model being trained.
  const TokenizerLike* processing_class = nullptr;  ///< The tokenizer.
  Optimizer* optimizer = nullptr;                   ///< The optimizer.
  LRScheduler* lr_scheduler = nullptr;              ///< The learning rate schedule.
  const DataLoader* train_dataloader = nullptr;     ///< Of the current run.
  const DataLoader* eval_dataloader = nullptr;      ///< Of the last evaluation.
  /// The reason, for on_train_end after an exception; otherwise empty.
  std::string exception = {};
};

/// Observes a run and asks for things through `TrainerControl`. Override the events you need.
///
/// - `on_init_end`: at the end of the Trainer's constructor.
/// - `on_train_begin`, `on_train_end`: around `train()`; the latter also after an exception.
/// - `on_epoch_begin`, `on_epoch_end`: around each pass over the data.
/// - `on_step_begin`: before the first batch of an accumulation window.
/// - `on_substep_end`: after each batch of a window but the last.
/// - `on_pre_optimizer_step`: after clipping, before the optimizer's step.
/// - `on_optimizer_step`: after the optimizer's step, before the gradients are reset.
/// - `on_step_end`: after a step was counted.
/// - `on_log`: when something is logged.
/// - `on_prediction_step`: after each batch of an evaluation or prediction.
/// - `on_evaluate`, `on_predict`: after an evaluation or prediction.
/// - `on_save`: after a checkpoint was taken; its files may still be being written.
/// - `on_push_begin`: never; gradus does not push to a hub.
///
/// Callbacks are called in the order they were added, on the training thread. An exception ends the
/// run: `on_train_end` is called with the reason, then `train()` throws it.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;

#define GRADUS_EVENT(name)                                                           \
  virtual void on_##name(const TrainingArguments& /*args*/, TrainerState& /*state*/, \
                         TrainerControl& /*control*/, const CallbackContext& /*at*/) {}
  /// One function per event, all with the same parameters. On a GPU, a callback that overrides
  /// `on_pre_optimizer_step` keeps the optimizer's step out of the recorded step.
  GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT

  /// The name in files and messages; by default the type's name without namespaces.
  virtual std::string name() const;

  /// The state that checkpoints keep; null for none.
  virtual nlohmann::json state_dict() const { return nullptr; }
  /// Restores what `state_dict` returned, on resume.
  virtual void load_state_dict(const nlohmann::json&) {}
  /// Tensors that checkpoints keep, in optimizer.pt; None for none.
  virtual StateTree tensor_state() const { return {}; }
  /// Restores what `tensor_state` returned, on resume.
  virtual void load_tensor_state(const StateTree&) {}
  /// Whether `state_dict` has the form {"args", "attributes"} that transformers exports, and also
  /// goes to trainer_state.json.
  virtual bool is_exportable() const { return false; }

  /// Whether evaluations during training use other weights than the model's own, for example their
  /// average. The Trainer then calls `swap_weights` before and after each evaluation.
  virtual bool has_evaluation_weights() const { return false; }
  /// Exchanges the weights for evaluation and the model's; a second call undoes it.
  virtual void swap_weights(Model& /*model*/) {}
};

namespace detail {
/// The events that `T`, or a base between it and `TrainerCallback`, overrides. All events when `T`
/// is `TrainerCallback` itself, because then its type is not known.
template <class T>
EventSet overridden_events() {
  EventSet events;
  if constexpr (std::same_as<T, TrainerCallback>) return events.set();
#define GRADUS_EVENT(name)                                                        \
  events.set(                                                                     \
      size_t(Event::name), !requires {                                            \
        { &T::on_##name } -> std::same_as<decltype(&TrainerCallback::on_##name)>; \
      });
  GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT
  return events;
}
}  // namespace detail

/// A callback and the events it listens to.
///
/// Made from a `std::shared_ptr` to the callback's own type, it listens to the events that the type
/// overrides. Made from a pointer to `TrainerCallback`, it listens to every event.
class CallbackHandle {
 public:
  /// A callback that listens to the events its type overrides.
  template <class T>
    requires std::derived_from<T, TrainerCallback>
  CallbackHandle(std::shared_ptr<T> callback)  // NOLINT: meant to convert
      : callback_(std::move(callback)), events_(detail::overridden_events<T>()) {}
  /// No callback. `Trainer::add_callback` throws `Error` G-TRAIN-9 for it.
  CallbackHandle(std::nullptr_t) {}  // NOLINT: meant to convert
  /// A callback that listens only to `events`, whatever its type overrides.
  CallbackHandle(std::shared_ptr<TrainerCallback> callback, EventSet events)
      : callback_(std::move(callback)), events_(events) {}

  /// Whether the callback is called at `event`.
  bool listens_to(Event event) const { return events_.test(size_t(event)); }
  /// The callback; null where a null pointer was given.
  const std::shared_ptr<TrainerCallback>& get() const { return callback_; }
  /// The members of the callback.
  TrainerCallback* operator->() const { return callback_.get(); }
  /// The callback.
  operator std::shared_ptr<TrainerCallback>() const { return callback_; }  // NOLINT: converts

 private:
  std::shared_ptr<TrainerCallback> callback_;
  EventSet events_;
};

/// How often `Trainer::on` calls a function: for step events at every `n`-th global step, for
/// others at every `n`-th occurrence.
struct Every {
  int64_t n = 1;  ///< At least 1.
};
/// An `Every`. Throws `Error` G-TRAIN-1 for an `n` below 1.
Every every(int64_t n);

/// What `Trainer::on` calls.
using EventFunction = std::function<void(const CallbackContext&, TrainerControl&)>;
/// A callback that calls one function at one event. Throws `Error` G-TRAIN-1 for a cadence below 1,
/// and G-TRAIN-9 for an empty function.
CallbackHandle make_callback(Event event, Every cadence, EventFunction function);

}  // namespace gradus
