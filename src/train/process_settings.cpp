#include "train/process_settings.h"

#include <gradus/device/attention_backend.h>
#include <gradus/device/cpu_matmul.h>
#include <gradus/device/runtime.h>

namespace gradus {

void apply_process_settings(const TrainingArguments& args) {
  device::set_num_threads(args.num_threads);
  device::use_cpu_matmul(args.cpu_matmul);
  if (args.tf32) device::allow_tf32(*args.tf32);
  if (args.full_determinism) {
    device::use_deterministic_algorithms();
    device::use_deterministic_attention();
  }
}

}  // namespace gradus
