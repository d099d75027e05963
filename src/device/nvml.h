#pragma once

#include <cstdint>
#include <optional>

namespace gradus::device {

/// What the driver says of a GPU: other processes count, too.
struct GpuUse {
  double percent = 0;         ///< of the last moments in which something ran
  double watts = 0;           ///< present power; 0 when it is not known
  uint64_t memory_used = 0;   ///< bytes
  uint64_t memory_total = 0;  ///< bytes
};

/// The use of GPU `index`, from libnvidia-ml, which is loaded at the first call; none without one.
/// Does not wait for the GPU. Thread-safe.
std::optional<GpuUse> gpu_use(int index = 0);

}  // namespace gradus::device
