#pragma once

#include <gradus/models/layers/activation.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gradus {

/// The values of a BigBird config.json. Throws `Error` G-MODEL-5 for one that makes no model.
struct BigBirdConfig {
  explicit BigBirdConfig(const nlohmann::json& values);

  int64_t vocabulary, positions, types, width, blocks, heads, inner;
  int64_t block_size;     ///< Tokens that attend together.
  int64_t random_blocks;  ///< Blocks that each block sees beside its neighbours and the ends.
  int64_t separator;      ///< The token between question and text.
  std::optional<int64_t> padding_index;
  layers::Activation activation;
  double hidden_dropout, attention_dropout, classifier_dropout, norm_eps;
  bool is_sparse;  ///< Long texts get block-sparse attention; else all get full attention.
  bool attention_bias, rescales_embeddings, is_decoder, tied;
  /// Flax trains the vector of the padding token like any other; PyTorch leaves it at zero.
  bool trains_padding = false;
};

}  // namespace gradus
