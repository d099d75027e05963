#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gradus {

struct TrainingArguments;

/// How a model recomputes activations in the backward pass instead of keeping them
/// (`gradient_checkpointing_kwargs`, `activation_memory_budget`).
struct GradientCheckpointing {
  int64_t every_n_layers = 1;  ///< Recomputes only the first block of every n.
  bool offload = false;        ///< Keeps the inputs of a block in page-locked host memory.
  /// Whether the second run uses the random numbers of the first. Without it, dropout makes the
  /// gradients wrong.
  bool preserve_rng_state = true;
  /// The share of what all blocks of a stack would keep that may be kept; 0 recomputes all blocks
  /// that `every_n_layers` names. The inputs of recomputed blocks count, too: a twelfth of what a
  /// block keeps, which is the least that a budget can reach.
  double memory_budget = 0;

  /// What the options of a run ask for; `nullopt` when nothing is recomputed.
  static std::optional<GradientCheckpointing> of(const TrainingArguments& args);

  /// Whether the block at `index` of a stack of `blocks` is recomputed. With a budget these are the
  /// first ones: the last ones give back what they keep before the first is computed again.
  bool recomputes(int64_t index, int64_t blocks) const;
  /// How many blocks of the stack are.
  int64_t recomputed(int64_t blocks) const;

  /// Reads a JSON object, or null for the defaults. The other arguments of torch's `checkpoint`
  /// choose between variants with equal results; they are accepted and have no effect. Throws
  /// `Error` G-CONF-10 for unknown keys and for values of the wrong type.
  static GradientCheckpointing from_kwargs(const nlohmann::json& kwargs);
};

}  // namespace gradus
