#include "distributed/process_device.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/device/runtime.h>

namespace gradus {

torch::Device process_device(bool use_cpu, int64_t local_rank, GpuSharing sharing) {
  const auto cards = use_cpu ? 0 : device::gpu_count();
  if (cards == 0) return torch::kCPU;
  if (local_rank >= cards && sharing == GpuSharing::refused)
    throw Error("G-DIST-6", ErrorKind::usage,
                fmt::format("process {} of this machine has no GPU of its own: there {} {}",
                            local_rank, cards == 1 ? "is" : "are", cards),
                fmt::format("Start at most {} here, share GPUs with --ddp_backend gloo, which is "
                            "slower, or add --use_cpu.",
                            cards));
  const auto device = device::pick_device(use_cpu, local_rank % cards);
  device::set_current_gpu(device);
  return device;
}

}  // namespace gradus
