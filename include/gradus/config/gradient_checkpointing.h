#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace gradus {

/// How a model gives activations up in forward and computes them again in backward:
/// `gradient_checkpointing_kwargs`.
struct GradientCheckpointing {
  int64_t every_n_layers = 1;  ///< of the blocks, in order, only the first of every n
  bool offload =
      false;  ///< what is kept of a block, its inputs, waits in page-locked memory of the host
  bool preserve_rng_state = true;  ///< compute again with the random numbers of the first time;
                                   ///< without, dropout makes gradients wrong

  /// Reads a dictionary, or null. The further arguments of torch's function choose among its own
  /// forms, whose numbers are the same: they are taken and have no effect. Throws `Error` G-CONF-10
  /// for other keys and for values of the wrong kind.
  static GradientCheckpointing from_kwargs(const nlohmann::json& kwargs);
};

}  // namespace gradus
