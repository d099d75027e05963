#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace gradus {

/// How a model recomputes activations in the backward pass instead of keeping them
/// (`gradient_checkpointing_kwargs`).
struct GradientCheckpointing {
  int64_t every_n_layers = 1;  ///< Recomputes only the first block of every n.
  bool offload = false;        ///< Keeps the inputs of a block in page-locked host memory.
  /// Whether the second run uses the random numbers of the first. Without it, dropout makes the
  /// gradients wrong.
  bool preserve_rng_state = true;

  /// Reads a JSON object, or null for the defaults. The other arguments of torch's `checkpoint`
  /// choose between variants with equal results; they are accepted and have no effect. Throws
  /// `Error` G-CONF-10 for unknown keys and for values of the wrong type.
  static GradientCheckpointing from_kwargs(const nlohmann::json& kwargs);
};

}  // namespace gradus
