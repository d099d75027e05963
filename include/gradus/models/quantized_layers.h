#pragma once

#include <gradus/kernels/nf4.h>
#include <gradus/models/pretrained_model.h>
#include <torch/types.h>

#include <cstdint>

namespace gradus {

/// How `quantize_4bit` lays weights out.
struct QuantizationOptions {
  /// Keep the scales in 8 bits, too (bitsandbytes' nested or double quantisation): 4.13 bits a
  /// weight instead of 4.5.
  bool nested = false;
  /// Where the layers are to compute. The model must go there afterwards, and stay.
  torch::Device device = torch::kCPU;
};

/// `matrix` with its scales in 8 bits, as bitsandbytes' `compress_statistics` has them.
kernels::Nf4Matrix nf4_nested(kernels::Nf4Matrix matrix);

/// Brings the weights of linear layers inside the model's blocks to 4 bits (NF4), with the bits of
/// bitsandbytes. Embeddings, norms, biases and heads stay as they are. Returns how many layers.
///
/// The layers are frozen from then on and can only be used, or trained by an adapter (QLoRA): an
/// adapter cannot be merged into them, start from their values (PiSSA) or split them (DoRA).
/// The model can no longer be saved, its adapter can. Throws `Error` G-PEFT-6 where the model has
/// no such layer.
int64_t quantize_4bit(PreTrainedModel& model, const QuantizationOptions& options = {});

}  // namespace gradus
