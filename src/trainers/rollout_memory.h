#pragma once

#include <gradus/data/batch.h>
#include <gradus/train/callback.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainers/completions_log.h"

namespace gradus {

/// The completions that a rollout trainer has not yet trained on, and how far it has come.
///
/// It is a callback of its trainer, so that checkpoints keep it: a resumed run goes on with the
/// same completions. With several processes checkpoints do not have it, because each process has
/// completions of its own; the resumed run then makes new ones, as in trl.
/// Thread-safety: none.
class RolloutMemory : public TrainerCallback {
 public:
  /// `is_saved` is false with several processes. `table` must outlive this object.
  RolloutMemory(bool is_saved, CompletionsLog& table) : is_saved_(is_saved), table_(table) {}

  int64_t step = 0;          ///< Batches trained on so far.
  std::vector<Batch> parts;  ///< The generation batch under way, in parts.
  /// Whether completions were made since the last log of an evaluation, of training.
  std::array<bool, 2> has_new_tokens = {};

  /// The rewards of the generation batch under way, as they are logged until the next one.
  std::map<std::string, double> last_rewards;

  /// What the trainer keeps besides, and takes back.
  std::function<StateTree()> own_state = nullptr;
  std::function<void(const StateTree&)> load_own_state = nullptr;

  std::string name() const override { return "RolloutMemory"; }
  /// Starts from nothing, unless a resume has restored what was left.
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  StateTree tensor_state() const override;
  void load_tensor_state(const StateTree& state) override;
  nlohmann::json state_dict() const override;
  void load_state_dict(const nlohmann::json& state) override;

 private:
  bool is_saved_;
  CompletionsLog& table_;
  bool restored_ = false;
};

}  // namespace gradus
