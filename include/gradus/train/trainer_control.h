#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gradus {

/// What callbacks ask for. Callbacks set the switches; only the loop acts on them and resets them.
/// The first five are those of transformers.
struct TrainerControl {
  bool should_training_stop = false;  ///< End the run after this step.
  bool should_epoch_stop = false;     ///< End this pass over the data after this step.
  bool should_save = false;           ///< Save a checkpoint after this step.
  bool should_evaluate = false;       ///< Evaluate after this step.
  bool should_log = false;            ///< Log after this step.
  /// Together with `should_training_stop`: the run is interrupted and will be resumed later from
  /// what is saved. The loop then skips what belongs to the end of a run, such as the end of the
  /// pass and loading the best model.
  bool is_interrupted = false;
  /// Together with `is_interrupted`: whether a checkpoint was asked for anyway, not only because of
  /// the interruption. A resume that repeats an interrupted evaluation then saves after it.
  bool save_was_due = false;
  /// Together with `is_interrupted`: the signal that asked for it, in any process; 0 for none.
  int interrupted_by = 0;

  /// Resets what a new run starts with.
  void new_training() {
    should_training_stop = is_interrupted = save_was_due = false;
    interrupted_by = 0;
  }
  /// Resets what a new pass over the data starts with.
  void new_epoch() { should_epoch_stop = false; }
  /// Resets what a new step starts with.
  void new_step() { should_save = should_evaluate = should_log = false; }

  /// The five switches as transformers exports them: {"args": {...}, "attributes": {}}.
  nlohmann::json state() const;
  /// Reads that form.
  static TrainerControl from_state(const nlohmann::json& state);
};

}  // namespace gradus
