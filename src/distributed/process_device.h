#pragma once

#include <torch/types.h>

#include <cstdint>

namespace gradus {

/// Whether processes of one machine may use the same GPU. NCCL cannot.
enum class GpuSharing { refused, allowed };

/// The device of the process that is number `local_rank` on its machine: a GPU of its own, which
/// becomes torch's current one, or the CPU when `use_cpu` is set or there is no GPU. Throws `Error`
/// (usage) G-DIST-6 when there are GPUs, but too few.
torch::Device process_device(bool use_cpu, int64_t local_rank, GpuSharing sharing);

}  // namespace gradus
