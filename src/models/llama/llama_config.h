#pragma once

#include <gradus/models/layers/activation.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// What the members of the Llama family differ in, read from config.json with each member's own
/// defaults.
struct LlamaConfig {
  /// Throws `Error` G-MODEL-5.
  explicit LlamaConfig(const nlohmann::json& values);

  int64_t vocabulary, width, inner, blocks, heads, key_value_heads, head_width, positions;
  std::optional<int64_t> padding_index;
  double norm_eps, attention_dropout;
  std::string activation;
  bool query_bias;   ///< q, k and v have biases
  bool output_bias;  ///< so has the projection behind attention
  bool mlp_bias;
  bool normed_heads;  ///< q and k are normalised per head (Qwen3)
  bool tied;
  std::vector<std::optional<int64_t>> windows;  ///< sliding window of each block
};

}  // namespace gradus
