#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gradus {

/// What callbacks ask for; only the loop acts on it. HF's five switches.
struct TrainerControl {
  bool should_training_stop = false;
  bool should_epoch_stop = false;
  bool should_save = false;
  bool should_evaluate = false;
  bool should_log = false;

  void new_training() { should_training_stop = false; }
  void new_epoch() { should_epoch_stop = false; }
  void new_step() { should_save = should_evaluate = should_log = false; }

  /// HF's exported form: {"args": {...}, "attributes": {}}.
  nlohmann::json state() const;
  static TrainerControl from_state(const nlohmann::json& state);
};

}  // namespace gradus
