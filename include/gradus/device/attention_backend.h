#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gradus::device {

/// A call of attention as a model makes it.
struct AttentionShape {
  int64_t batch = 1, heads = 1, key_heads = 1, tokens = 1, width = 64;
  torch::ScalarType dtype = torch::kBFloat16;
  double dropout = 0;
  bool causal = true;
};

struct AttentionTime {
  std::string name;         ///< "cudnn", "flash", "efficient" or "math"
  double milliseconds = 0;  ///< forward and backward
};

/// What torch's implementations of attention take for `shape` on a GPU, the fastest first; those
/// that cannot do it are left out. The random state is left as it was. Waits for the device.
std::vector<AttentionTime> measure_attention(const AttentionShape& shape, torch::Device device);

/// From now on torch tries `name` first where several implementations could be used. Unknown names
/// are ignored.
void prefer_attention(const std::string& name);

/// Only implementations that give the same bits every time.
void use_deterministic_attention();

}  // namespace gradus::device
