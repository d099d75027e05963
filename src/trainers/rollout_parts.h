#pragma once

#include <gradus/distributed/process_group.h>
#include <gradus/trainers/rollout_trainer.h>

#include "trainers/completion_sampler.h"
#include "trainers/completions_log.h"
#include "trainers/metric_log.h"
#include "trainers/reference_policy.h"
#include "trainers/reward_scorer.h"
#include "trainers/rollout_memory.h"

namespace gradus {

/// What a rollout trainer holds.
struct RolloutTrainer::Rolling {
  RolloutSettings settings;
  CompletionSampler sampler;
  RewardScorer scorer;
  std::vector<double> reward_weights = {};
  std::shared_ptr<const ReferencePolicy> reference = nullptr;
  RolloutFunction rollout_func;
  DatasetRef train_rows = {};  ///< As given: with all columns.
  DatasetRef eval_rows = {};   ///< Of the evaluation under way.
  CompletionsLog completions;
  /// The completions that are left, and the step.
  std::shared_ptr<RolloutMemory> memory = nullptr;
  /// Columns of the table of completions, of the generation batch under way.
  std::vector<std::pair<std::string, std::vector<Value>>> reward_cells = {};
  double step_time = 0;
  mutable int64_t window = 1;  ///< Batches of the accumulation window.
  mutable int64_t place = 0;   ///< Of the batch under way in it.
  bool evaluating = false;
  int64_t batches_left = 0;     ///< Of the evaluation under way, behind the batch under way.
  int64_t rows_of_the_end = 0;  ///< How many rows its last batch counts for.
};

/// The model as one that can write text. Throws `Error` G-TRL-1 for another one.
PreTrainedModel& policy_of(Model& model, const std::string& trainer);

/// The column of the loader's batches: the numbers of rows. Their content is read when completions
/// are made.
constexpr const char* kRowNumber = "row";

}  // namespace gradus
