#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gradus::layers {

/// Rotary position embeddings with the scalings of transformers: default, linear, dynamic, llama3,
/// yarn, longrope and proportional.
///
/// It has no parameters and is not a module. Thread-safety: none for `dynamic`, which changes with
/// the longest sequence it has seen; the others are constant apart from a cached copy on the
/// device.
class RotaryEmbedding {
 public:
  /// Reads `rope_parameters` (or `rope_scaling` and `rope_theta`) of a config.json.
  /// `default_positions` is used when the config has no `max_position_embeddings`. Throws `Error`
  /// G-MODEL-5 for an unknown kind or a missing or impossible number.
  RotaryEmbedding(const nlohmann::json& config, int64_t head_width,
                  int64_t default_positions = 2048);

  /// Cosines and sines of all positions.
  struct Angles {
    torch::Tensor cos;  ///< (batch or 1, tokens, 1, rotated width / 2).
    torch::Tensor sin;  ///< The same shape.
  };
  /// The angles of the given positions, in `dtype` on the CPU and in float32 on a GPU. `length` is
  /// one more than the highest position; without it `dynamic` has to read the positions, and the
  /// host waits for the GPU.
  Angles angles(const torch::Tensor& position_ids, torch::Dtype dtype,
                std::optional<int64_t> length = std::nullopt);

  /// The inverse wavelength of each pair of channels, in float32 on the CPU.
  const torch::Tensor& inverse_frequencies() const { return inverse_frequencies_; }

 private:
  torch::Tensor inverse_frequencies_;
  torch::Tensor original_;   ///< Those for the trained length, for `dynamic`.
  torch::Tensor beyond_;     ///< Those beyond the trained length, for `longrope`.
  torch::Tensor on_device_;  ///< Copy of inverse_frequencies_ on the last device.
  double attention_factor_ = 1.0;
  bool dynamic_ = false;
  double base_ = 10000.0;
  double factor_ = 1.0;
  int64_t width_ = 0;
  int64_t trained_length_ = 0;
  int64_t longest_ = 0;
};

/// Query and key after the rotation.
struct RotatedStates {
  torch::Tensor query;  ///< (batch, tokens, heads, width).
  torch::Tensor key;    ///< (batch, tokens, key heads, width).
};

/// Rotates query and key (batch, tokens, heads, width). Channels beyond the rotated width are
/// copied.
RotatedStates apply_rotary(const torch::Tensor& query, const torch::Tensor& key,
                           const RotaryEmbedding::Angles& angles);

}  // namespace gradus::layers
