#pragma once

#include <gradus/config/gradient_checkpointing.h>
#include <gradus/data/batch.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/model.h>

#include <optional>

#include "models/wav2vec2/speech_layers.h"

namespace gradus {

/// What the body of a speech model returns.
struct SpeechOutput {
  torch::Tensor last_hidden_state;  ///< (batch, frames, width)
  torch::Tensor extract_features;   ///< normed frames before projection and masks
  torch::Tensor lengths;            ///< (batch) frames of each row; undefined: all of them
  torch::Tensor frame_mask;         ///< (batch, frames) bool; undefined: no padding
  std::vector<torch::Tensor> hidden_states, attentions;  ///< when asked for
};

/// Convolutions, projection, masks and encoder of wav2vec 2.0 and HuBERT.
class SpeechBody : public torch::nn::Module {
 public:
  explicit SpeechBody(SpeechConfig config);
  SpeechOutput forward(const Batch& inputs, const ForwardOptions& options);

  /// Frames of rows with these numbers of samples, on their device.
  torch::Tensor frames_of(torch::Tensor samples, bool with_adapter) const;
  /// (batch, frames) bool: which frames are sound, from (batch) `lengths`.
  static torch::Tensor mask_of(const torch::Tensor& lengths, int64_t frames);

  const SpeechConfig config;
  std::optional<GradientCheckpointing> gradient_checkpointing;
  torch::Tensor masked_spec_embed;  ///< undefined for models that never mask
  std::shared_ptr<layers::Linear> projection;
  std::shared_ptr<layers::ModuleList<SpeechConvLayer>> convolutions;

 private:
  torch::Tensor masked(torch::Tensor x, const SpeechOutput& output, const Batch& inputs) const;
  torch::Tensor encode(torch::Tensor x, SpeechOutput& output, const ForwardOptions& options) const;
  torch::Tensor adapted(torch::Tensor x) const;

  std::shared_ptr<torch::nn::LayerNormImpl> projection_norm_, encoder_norm_, adapter_norm_;
  std::shared_ptr<SpeechPositions> positions_;
  std::shared_ptr<layers::ModuleList<SpeechBlock>> blocks_;
  std::shared_ptr<layers::Linear> adapter_projection_;
  std::vector<std::shared_ptr<SpeechConv>> adapter_;
};

}  // namespace gradus
