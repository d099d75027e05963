#pragma once

#include <gradus/distributed/process_group.h>
#include <torch/types.h>

#include <memory>
#include <string>

namespace gradus::hooks {

/// The processes that train together, as one of them sees it. `AccelerateHook` fills it in;
/// `Trainer::accelerator()` gives it to other hooks and to steps.
struct Accelerator {
  torch::Device device = torch::kCPU;       ///< where this process trains
  int64_t num_processes = 1;                ///< how many processes train together
  int64_t process_index = 0;                ///< which of them this is
  int64_t gradient_accumulation_steps = 1;  ///< batches per optimizer step
  std::string mixed_precision = "no";       ///< "no", "fp16" or "bf16"
  bool sync_gradients = true;  ///< whether the batch under way ends an accumulation window

  std::shared_ptr<ProcessGroup> group = {};  ///< for exchanges of your own; null for one process

  /// Whether this process is the one that logs and saves.
  bool is_main_process() const { return process_index == 0; }
};

}  // namespace gradus::hooks
