#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gradus::layers {

/// Rotary position embeddings with the scalings of transformers: default, linear, dynamic, llama3,
/// yarn, longrope, proportional.
///
/// It has no parameters and is no module. Thread-safety: `dynamic` changes with the longest
/// sequence seen; the others are constant.
class RotaryEmbedding {
 public:
  /// Reads `rope_parameters` (or `rope_scaling` and `rope_theta`) of a config.json.
  /// Throws `Error` G-MODEL-5 for an unknown kind or a missing or impossible number.
  /// `default_positions`: the architecture's own `max_position_embeddings`, for a config without
  /// it.
  RotaryEmbedding(const nlohmann::json& config, int64_t head_width,
                  int64_t default_positions = 2048);

  struct Angles {
    torch::Tensor cos, sin;  ///< (batch or 1, tokens, 1, rotated width / 2), in the dtype asked for
  };
  /// On a GPU they are always float32.
  /// `length`, one more than the highest position, spares `dynamic` a look at the positions, for
  /// which the host would wait for a GPU.
  Angles angles(const torch::Tensor& position_ids, torch::Dtype dtype,
                std::optional<int64_t> length = std::nullopt);

  /// 1 / wavelength per pair of channels, float32 on the CPU.
  const torch::Tensor& inverse_frequencies() const { return inverse_frequencies_; }

 private:
  torch::Tensor inverse_frequencies_;
  torch::Tensor original_;   ///< those for the trained length, for `dynamic`
  torch::Tensor beyond_;     ///< `longrope`: those for texts longer than the trained length
  torch::Tensor on_device_;  ///< copy of inverse_frequencies_ where it was used last
  double attention_factor_ = 1.0;
  bool dynamic_ = false;
  double base_ = 10000.0;
  double factor_ = 1.0;
  int64_t width_ = 0;
  int64_t trained_length_ = 0;
  int64_t longest_ = 0;
};

struct RotatedStates {
  torch::Tensor query, key;
};

/// Rotates both (batch, tokens, heads, width); channels beyond the rotated width stay as they are.
RotatedStates apply_rotary(const torch::Tensor& query, const torch::Tensor& key,
                           const RotaryEmbedding::Angles& angles);

}  // namespace gradus::layers
