#pragma once

#include <gradus/config/training_arguments.h>
#include <gradus/models/model.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// What a training step holds in the memory of a device at its peak, in bytes, term by term.
struct MemoryTerms {
  double weights = 0;      ///< The model's parameters and buffers.
  double masters = 0;      ///< float32 copies of bfloat16 weights, which the optimizer trains.
  double optimizer = 0;    ///< The optimizer's state.
  double gradients = 0;    ///< Of the trainable parameters, as far as they are there at the peak.
  double activations = 0;  ///< What the backward pass needs of the forward pass.
  double loss = 0;         ///< Logits of a chunk, or of all tokens, and their gradients.
  double other = 0;        ///< The batch, work space of libraries.

  /// All of it.
  double total() const;
};

/// What the memory of a run follows from.
struct PlannedStep {
  nlohmann::json config;   ///< The model's config.json.
  int64_t parameters = 0;  ///< Of the model.
  int64_t trainable = 0;   ///< Those of them that are trained; fewer with an adapter.
  int64_t half = 0;        ///< Those that are in half precision already.
  int64_t rows = 1;        ///< Of a batch.
  int64_t sequences = 1;   ///< Of a row: 2 where a row is a pair of texts.
  int64_t tokens = 1;      ///< Of a sequence, padding included; of its source, if it has two texts.
  int64_t target_tokens = 1;     ///< Of a row's target, in models with encoder and decoder.
  std::string precision = "no";  ///< "no", "fp16" or "bf16".
  bool master_weights = false;   ///< bfloat16 weights beside float32 masters.
  /// Which blocks are computed again in the backward pass; unset: none.
  std::optional<GradientCheckpointing> checkpointing = std::nullopt;
  int64_t accumulation = 1;                 ///< Batches of a step; above 1 gradients stay between.
  bool keeps_logits = false;                ///< Somebody reads the logits of training steps.
  bool fused = false;                       ///< The kernels of the CUDA plugin are there.
  std::string optim = "adamw_torch_fused";  ///< The optimizer.

  /// Of a model and its arguments on a device of this kind.
  static PlannedStep of(Model& model, const TrainingArguments& args, int64_t tokens, bool on_gpu);
};

/// Whether `plan_memory` knows the architecture's activations. Others can be measured.
bool knows_activations(const nlohmann::json& config);

/// The terms of a step. Throws `Error` G-PLAN-1 for an architecture whose activations are not
/// known.
MemoryTerms plan_memory(const PlannedStep& step);

/// Bytes of an optimizer's state for one parameter.
double optimizer_state_bytes(const std::string& optim);

/// The largest batch whose step fits into so many bytes; 0 when not even one row does.
int64_t largest_batch(PlannedStep step, double bytes);

/// A change that saves memory, and the peak with it.
struct MemoryAdvice {
  std::string flag;       ///< "--gradient_checkpointing".
  double total = 0;       ///< Bytes with it, and with those before it.
  std::string cost = {};  ///< What it costs, in words.
};
/// What to switch on so that a step fits into `bytes`, one after the other, the cheapest first;
/// ends when it fits or nothing is left.
std::vector<MemoryAdvice> memory_advice(PlannedStep step, double bytes);

}  // namespace gradus
