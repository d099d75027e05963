#pragma once

#include <cstdint>
#include <optional>

namespace gradus {

struct TrainingArguments;
class DataLoader;

/// How long a run is, worked out before it begins.
struct TrainingPlan {
  int64_t num_train_epochs =
      0;  ///< passes over the loader; the largest int64 when it has no length
  int64_t num_update_steps_per_epoch = 0;  ///< optimizer steps of a pass
  int64_t num_examples = 0;
  double num_train_samples = 0;        ///< rows the whole run will see
  int64_t total_train_batch_size = 0;  ///< rows per optimizer step
  int64_t steps_in_epoch = 0;          ///< batches of a pass
  int64_t max_steps = 0;               ///< optimizer steps of the run
};

/// Throws `Error` G-TRAIN-4 when the loader has no length and max_steps is not set.
TrainingPlan plan_training(const TrainingArguments& args, const DataLoader& loader,
                           int64_t train_batch_size);

}  // namespace gradus
