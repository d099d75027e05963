#pragma once

#include <gradus/models/attention_shape.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

/// What gradus asks of the machine: devices, seeds, memory, streams and recorded work.
namespace gradus::device {

using gradus::AttentionShape;

/// The time one implementation of attention took.
struct AttentionTime {
  std::string name;         ///< "cudnn", "flash", "efficient" or "math".
  double milliseconds = 0;  ///< For one forward and backward pass.
};

/// Times torch's implementations of attention for `shape` on a GPU, the fastest first. Those that
/// cannot run it are left out; "math" is timed only when no other one can. The random state is
/// restored. Waits for the device.
std::vector<AttentionTime> measure_attention(const AttentionShape& shape, torch::Device device);

/// Makes torch try the implementation `name` first from now on. Unknown names are ignored.
void prefer_attention(const std::string& name);

/// Restricts torch to implementations whose results do not vary from run to run, for the whole
/// process.
void use_deterministic_attention();

}  // namespace gradus::device
