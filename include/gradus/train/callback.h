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

/// Every moment at which callbacks are called, in transformers' names without `on_`. This list is
/// the only one: the enum, the names, the virtual functions and the calls are made from it.
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

/// The moments of a run that callbacks can listen to.
enum class Event {
#define GRADUS_EVENT(name) name,
  GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT
};
#define GRADUS_EVENT(name) +1
/// How many events there are.
constexpr int kEventCount = 0 GRADUS_FOR_EACH_EVENT(GRADUS_EVENT);
#undef GRADUS_EVENT
/// A set of events, by their numbers.
using EventSet = std::bitset<size_t(kEventCount)>;
/// "on_step_end" and so on.
const char* event_name(Event event);

/// What a callback may look at. Pointers are null while the part does not exist; nothing outlives
/// the call.
struct CallbackContext {
  const TrainerState& state;
  const Logs& logs;        ///< filled for on_log
  const Metrics& metrics;  ///< filled for on_evaluate and on_predict
  Model* model = nullptr;
  const TokenizerLike* processing_class = nullptr;
  Optimizer* optimizer = nullptr;
  LRScheduler* lr_scheduler = nullptr;
  const DataLoader* train_dataloader = nullptr;
  const DataLoader* eval_dataloader = nullptr;
  /// Why training ended early, for on_train_end after an exception; empty otherwise.
  std::string exception = {};
};

/// Watches a run and asks for things through `TrainerControl`. Override the events of interest.
///
/// Callbacks are called in the order they were added, from the training thread. What one throws
/// ends the run: `on_train_end` comes with the reason, then `train()` throws it.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;

#define GRADUS_EVENT(name)                                                           \
  virtual void on_##name(const TrainingArguments& /*args*/, TrainerState& /*state*/, \
                         TrainerControl& /*control*/, const CallbackContext& /*at*/) {}
  /// One function per event, all with the same parameters. `on_pre_optimizer_step` comes after
  /// clipping and before the optimizer's step: on a GPU, a callback that overrides it keeps that
  /// step out of the recorded one.
  GRADUS_FOR_EACH_EVENT(GRADUS_EVENT)
#undef GRADUS_EVENT

  /// Key in files and messages; default: the unqualified type name.
  virtual std::string name() const;

  /// State that a checkpoint keeps and a resume restores; null keeps nothing.
  virtual nlohmann::json state_dict() const { return nullptr; }
  virtual void load_state_dict(const nlohmann::json&) {}
  /// The same for tensors (kept in optimizer.pt).
  virtual StateTree tensor_state() const { return {}; }
  virtual void load_tensor_state(const StateTree&) {}
  /// Whether `state_dict` has the form {"args", "attributes"} that transformers exports, and also
  /// goes to trainer_state.json.
  virtual bool is_exportable() const { return false; }

  /// Whether evaluations inside training should use other weights than the model's own, such as
  /// an average of them. The trainer then calls `swap_weights` before and after each.
  virtual bool has_evaluation_weights() const { return false; }
  /// Exchanges the weights to evaluate with the model's; a second call undoes it.
  virtual void swap_weights(Model& /*model*/) {}
};

namespace detail {
/// The events whose function `T`, or a base between it and `TrainerCallback`, overrides. All of
/// them where `T` is `TrainerCallback` itself and so does not tell.
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

/// A callback together with the events it listens to, which are known when it is added.
///
/// Made from a `std::shared_ptr` to the callback's own type, it holds the events which that type
/// overrides. A pointer to `TrainerCallback` does not tell: it listens to every event.
class CallbackHandle {
 public:
  template <class T>
    requires std::derived_from<T, TrainerCallback>
  CallbackHandle(std::shared_ptr<T> callback)  // NOLINT: meant to convert
      : callback_(std::move(callback)), events_(detail::overridden_events<T>()) {}
  /// No callback; where one is expected, it is refused.
  CallbackHandle(std::nullptr_t) {}  // NOLINT: meant to convert
  /// A callback that listens to `events` only, whatever its type overrides.
  CallbackHandle(std::shared_ptr<TrainerCallback> callback, EventSet events)
      : callback_(std::move(callback)), events_(events) {}

  /// Whether the callback is called at `event`.
  bool listens_to(Event event) const { return events_.test(size_t(event)); }
  /// The callback; null where a null pointer was given.
  const std::shared_ptr<TrainerCallback>& get() const { return callback_; }
  TrainerCallback* operator->() const { return callback_.get(); }
  operator std::shared_ptr<TrainerCallback>() const { return callback_; }  // NOLINT: converts

 private:
  std::shared_ptr<TrainerCallback> callback_;
  EventSet events_;
};

/// A cadence for `Trainer::on`: every `n`-th occurrence of a global step (for step events) or of
/// the event itself.
struct Every {
  int64_t n = 1;
};
/// Throws `Error` G-TRAIN-1 for an `n` below 1.
Every every(int64_t n);

using EventFunction = std::function<void(const CallbackContext&, TrainerControl&)>;
/// A callback of one function for one event. Throws `Error` G-TRAIN-1 for a cadence below 1,
/// G-TRAIN-9 for an empty function.
CallbackHandle make_callback(Event event, Every cadence, EventFunction function);

}  // namespace gradus
