#pragma once

#include <cstdint>

namespace gradus::hooks {

/// All counters of a run in one place. They hold for any number of processes and for any gradient
/// accumulation, and checkpoints save them.
struct StepState {
  int64_t batch_idx = 0;         ///< training batches done in this epoch; 0 in validation
  int64_t optimizer_step = 0;    ///< optimizer steps that were really made
  int64_t samples_seen = 0;      ///< training rows over all processes; a good x-axis
  int64_t epoch = 0;             ///< the epoch under way, counted from 0
  int64_t grad_accum_steps = 1;  ///< batches per optimizer step
  int64_t num_processes = 1;     ///< processes that train together

  /// Whether the batch under way ends an accumulation window.
  bool is_grad_accum_boundary(bool is_last_batch = false) const {
    return (batch_idx + 1) % grad_accum_steps == 0 || is_last_batch;
  }

  /// Counts a batch of `batch_size` rows. Validation batches count in `batch_idx` only.
  void increment_batch(int64_t batch_size, bool is_training = true,
                       bool did_optimizer_step = false) {
    ++batch_idx;
    if (!is_training) return;
    samples_seen += batch_size * num_processes;
    if (did_optimizer_step) ++optimizer_step;
  }

  /// Starts counting the batches of a new pass.
  void reset_epoch() { batch_idx = 0; }

  /// Whether all counters are equal.
  bool operator==(const StepState&) const = default;
};

}  // namespace gradus::hooks
