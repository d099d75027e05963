#pragma once

#include <gradus/models/layers/activation.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradus {

/// How wav2vec 2.0 and HuBERT differ.
struct SpeechFamily {
  const char* prefix;  ///< name of the body's module: "wav2vec2"
  const char* name;    ///< how class names begin: "Wav2Vec2"
  /// Whether SpecAugment's spans keep to the audio of a row; HuBERT's may begin in its padding.
  bool masks_within_audio;
  bool zero_conv_bias;  ///< fresh biases of convolutions are zero
};

/// The config.json of both families; keys that one lacks have the value that changes nothing.
struct SpeechConfig {
  SpeechConfig(const nlohmann::json& values, const SpeechFamily& which);

  const SpeechFamily* family;
  int64_t vocabulary, width, blocks, heads, inner;
  layers::Activation activation, conv_activation;
  double hidden_dropout, activation_dropout, attention_dropout, projection_dropout,
      quantizer_dropout, final_dropout, layerdrop, norm_eps;
  bool is_group_norm, conv_bias, stable_norm, spec_augment;
  std::vector<int64_t> conv_dim, conv_stride, conv_kernel;
  int64_t positions, position_groups;
  bool position_batch_norm, projection_norm;  ///< HuBERT's switches
  double mask_time_prob, mask_feature_prob;
  int64_t mask_time_length, mask_time_min_masks, mask_feature_length, mask_feature_min_masks;
  int64_t codevectors, codevector_groups, codevector_dim, projected_dim;
  double contrastive_temperature, diversity_weight;
  std::string ctc_reduction;
  bool zero_infinity, weighted_layers;
  int64_t classifier_width, blank;
  bool has_adapter;
  int64_t adapter_kernel, adapter_stride, adapter_layers, output_width;
  int64_t attention_adapter = 0;  ///< width of the adapters in blocks; 0: none

  /// Frames that the convolutions make of `samples`; 0 or less for too few samples.
  int64_t frames(int64_t samples, bool with_adapter) const;
};

}  // namespace gradus
