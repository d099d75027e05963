#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

/// What gradus asks of the machine: devices, seeds, memory, streams and recorded work.
namespace gradus::device {

/// A call of attention as a model makes it.
struct AttentionShape {
  int64_t batch = 1;                           ///< Sequences.
  int64_t heads = 1;                           ///< Heads of the query.
  int64_t key_heads = 1;                       ///< Heads of key and value.
  int64_t tokens = 1;                          ///< Length of a sequence.
  int64_t width = 64;                          ///< Channels of a head.
  torch::ScalarType dtype = torch::kBFloat16;  ///< Of query, key and value.
  double dropout = 0;                          ///< Probability of dropping an attention weight.
  bool causal = true;                          ///< Whether a token sees only earlier ones.
};

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
