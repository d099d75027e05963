#pragma once

#include <torch/types.h>

#include <string>

namespace gradus::hooks {

/// The processes that train together, as one of them sees it.
struct Accelerator {
  torch::Device device = torch::kCPU;
  int64_t num_processes = 1;
  int64_t process_index = 0;
  int64_t gradient_accumulation_steps = 1;
  std::string mixed_precision = "no";
  bool sync_gradients = true;  ///< whether the batch under way ends an accumulation window

  bool is_main_process() const { return process_index == 0; }
};

}  // namespace gradus::hooks
