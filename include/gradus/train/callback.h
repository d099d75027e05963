#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/train/trainer_control.h>
#include <gradus/train/trainer_state.h>

#include <functional>
#include <memory>
#include <string>

namespace gradus {

class DataLoader;
class LRScheduler;
class Model;
class Optimizer;
struct TokenizerLike;

/// The 16 moments at which callbacks are called, in HF's names without `on_`.
enum class Event {
  init_end,
  train_begin,
  train_end,
  epoch_begin,
  epoch_end,
  step_begin,
  pre_optimizer_step,
  optimizer_step,
  substep_end,
  step_end,
  evaluate,
  predict,
  save,
  log,
  prediction_step,
  push_begin,
};
constexpr int kEventCount = 16;
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
  GRADUS_EVENT(init_end)
  GRADUS_EVENT(train_begin)
  GRADUS_EVENT(train_end)
  GRADUS_EVENT(epoch_begin)
  GRADUS_EVENT(epoch_end)
  GRADUS_EVENT(step_begin)
  GRADUS_EVENT(optimizer_step)
  GRADUS_EVENT(substep_end)
  GRADUS_EVENT(step_end)
  GRADUS_EVENT(evaluate)
  GRADUS_EVENT(predict)
  GRADUS_EVENT(save)
  GRADUS_EVENT(log)
  GRADUS_EVENT(prediction_step)
  GRADUS_EVENT(push_begin)
#undef GRADUS_EVENT

  /// After clipping, before the optimizer's step. On a GPU, a callback that overrides it keeps that
  /// step out of the recorded one.
  virtual void on_pre_optimizer_step(const TrainingArguments& /*args*/, TrainerState& /*state*/,
                                     TrainerControl& /*control*/, const CallbackContext& /*at*/) {
    passes_pre_optimizer_step_ = true;
  }
  /// Whether the event came and nothing was done: the class does not override it.
  bool passes_pre_optimizer_step() const { return passes_pre_optimizer_step_; }

  /// Key in files and messages; default: the unqualified type name.
  virtual std::string name() const;

  /// State that a checkpoint keeps and a resume restores; null keeps nothing.
  virtual nlohmann::json state_dict() const { return nullptr; }
  virtual void load_state_dict(const nlohmann::json&) {}
  /// The same for tensors (kept in optimizer.pt).
  virtual StateTree tensor_state() const { return {}; }
  virtual void load_tensor_state(const StateTree&) {}
  /// Whether `state_dict` has HF's exported form {"args", "attributes"} and also goes to
  /// trainer_state.json.
  virtual bool is_exportable() const { return false; }

 private:
  bool passes_pre_optimizer_step_ = false;
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
std::shared_ptr<TrainerCallback> make_callback(Event event, Every cadence, EventFunction function);

}  // namespace gradus
