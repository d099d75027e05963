#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gradus {

/// What callbacks ask for; only the loop acts on it. The first five are transformers' switches.
struct TrainerControl {
  bool should_training_stop = false;
  bool should_epoch_stop = false;
  bool should_save = false;
  bool should_evaluate = false;
  bool should_log = false;
  /// Beside `should_training_stop`: the run is broken off here, to go on later from what is saved.
  /// The loop then leaves out what belongs to a run's end (the end of the pass, the best model).
  bool is_interrupted = false;

  void new_training() { should_training_stop = is_interrupted = false; }
  void new_epoch() { should_epoch_stop = false; }
  void new_step() { should_save = should_evaluate = should_log = false; }

  /// The five switches as transformers exports them: {"args": {...}, "attributes": {}}.
  nlohmann::json state() const;
  static TrainerControl from_state(const nlohmann::json& state);
};

}  // namespace gradus
