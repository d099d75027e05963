#pragma once

#include <gradus/data/batch.h>
#include <gradus/distributed/process_group.h>
#include <gradus/train/callback.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/shared_state.h"
#include "trainers/completions_log.h"

namespace gradus {

/// The completions that a rollout trainer has not yet trained on, and how far it has come.
///
/// It is a callback of its trainer, so that checkpoints keep it: a resumed run goes on with the
/// same completions. Each process has completions of its own, and the checkpoint has those of all.
/// A run that goes on with another number of processes makes new ones, as in trl.
/// Thread-safety: none.
class RolloutMemory : public TrainerCallback, public SharedState {
 public:
  /// `group` is null for a single process. `table` must outlive this object.
  RolloutMemory(std::shared_ptr<ProcessGroup> group, CompletionsLog& table)
      : group_(std::move(group)), table_(table) {}

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
  void gather_state() override;

 private:
  std::shared_ptr<ProcessGroup> group_;
  CompletionsLog& table_;
  StateTree of_all_;  ///< The parts of every process, by rank, for the save under way.
  bool restored_ = false;
};

}  // namespace gradus
