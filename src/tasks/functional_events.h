#pragma once

#include <gradus/models/model.h>
#include <gradus/trackers/tracker.h>
#include <gradus/train/trainer_state.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/callback_list.h"

namespace gradus::tasks {

/// Tells callbacks and the trackers of `report_to` what a functional run does, and keeps its log.
///
/// `functional::Trainer` knows no callbacks: this object is its logger, and its `should_stop` asks
/// `ends_after`. Callbacks hear of train_begin, step_end, log, evaluate, save and train_end; of
/// log, evaluate and save in the first process only. Of what they ask for, the end of the run is
/// heeded. Thread-safety: none.
class FunctionalEvents : public Tracker {
 public:
  FunctionalEvents(const TrainingArguments& args, std::shared_ptr<Model> model,
                   const std::vector<CallbackHandle>& callbacks);

  /// Training begins after the steps and log entries of `state`.
  void begin_training(TrainerState state, int64_t steps_of_epoch);
  /// An entry of the log. One with "eval_loss" is an evaluation, too.
  void log(const std::map<std::string, double>& values, int64_t step) override;
  /// A step was made; whether a callback wants the run to end.
  bool ends_after(int64_t step);
  /// A checkpoint was written.
  void saved();
  /// The signal that ended the run, in any process; 0 for none. Every process calls it.
  int interrupted_by();
  /// Training has ended; `exception` is why, when it failed.
  void end_training(const std::string& exception = "");

  /// What trainer_state.json holds.
  const TrainerState& state() const { return state_; }

 private:
  void call(Event event, const std::string& exception = "");

  TrainingArguments args_;
  std::shared_ptr<Model> model_;
  CallbackList callbacks_;
  TrainerState state_;
  TrainerControl control_;
  Logs logs_;
  Metrics metrics_;
  int64_t steps_of_epoch_ = 1;
};

}  // namespace gradus::tasks
