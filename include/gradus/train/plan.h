#pragma once

#include <cstdint>
#include <optional>

namespace gradus {

struct TrainingArguments;
class DataLoader;

/// The length of a run, computed before it begins.
struct TrainingPlan {
  /// Passes over the loader; the largest int64 when it has no length.
  int64_t num_train_epochs = 0;
  int64_t num_update_steps_per_epoch = 0;  ///< Optimizer steps of a pass.
  int64_t num_examples = 0;                ///< Rows of a pass.
  double num_train_samples = 0;            ///< Rows that the whole run will see.
  int64_t total_train_batch_size = 0;      ///< Rows per optimizer step.
  int64_t steps_in_epoch = 0;              ///< Batches of a pass.
  int64_t max_steps = 0;                   ///< Optimizer steps of the run.
};

/// Plans a run. Throws `Error` G-TRAIN-4 when the loader has no batches, or has no length while
/// `max_steps` is not set.
TrainingPlan plan_training(const TrainingArguments& args, const DataLoader& loader,
                           int64_t train_batch_size);

}  // namespace gradus
