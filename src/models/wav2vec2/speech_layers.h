#pragma once

#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/linear.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <vector>

#include "models/wav2vec2/speech_config.h"

namespace gradus {

/// The sizes of a convolution over time.
struct SpeechConvOptions {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, groups = 1;
  bool bias = true;
};

/// A convolution over time, (batch, channels, time). Parameters have no values yet.
class SpeechConv : public torch::nn::Module {
 public:
  explicit SpeechConv(const SpeechConvOptions& options);
  torch::Tensor forward(const torch::Tensor& x) const;

  SpeechConvOptions options;
  torch::Tensor weight, bias;
};

/// A convolution whose kernel is direction times length, the length being one for each place of
/// the kernel: torch's `weight_norm(conv, dim=2)`.
class WeightNormConv : public torch::nn::Module {
 public:
  explicit WeightNormConv(const SpeechConvOptions& options);
  torch::Tensor forward(const torch::Tensor& x) const;

  SpeechConvOptions options;
  torch::Tensor bias, length, direction;
};

/// One layer of the feature extractor: convolution, norm (in some) and activation.
class SpeechConvLayer : public torch::nn::Module {
 public:
  SpeechConvLayer(const SpeechConfig& config, size_t index);
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  layers::Activation activation_;
  std::shared_ptr<SpeechConv> conv_;
  std::shared_ptr<torch::nn::GroupNormImpl> group_norm_;  ///< null in most layers
  std::shared_ptr<torch::nn::LayerNormImpl> layer_norm_;  ///< null in the group-norm form
};

/// Where a frame is: a wide convolution over the frames themselves.
class SpeechPositions : public torch::nn::Module {
 public:
  explicit SpeechPositions(const SpeechConfig& config);
  /// (batch, frames, width) to the same.
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  layers::Activation activation_;
  bool drops_last_;
  std::shared_ptr<WeightNormConv> conv_;    ///< null with a batch norm
  std::shared_ptr<SpeechConv> plain_conv_;  ///< null without
  std::shared_ptr<torch::nn::BatchNorm1dImpl> batch_norm_;
};

/// A block of the encoder: attention and feed-forward, with norms after each (the first form) or
/// before each (the stable form).
class SpeechBlock : public torch::nn::Module {
 public:
  explicit SpeechBlock(const SpeechConfig& config);
  /// `weights`, where it is given, receives the attention weights.
  torch::Tensor forward(const torch::Tensor& x, const layers::AttentionMask& mask,
                        torch::Tensor* weights = nullptr) const;

 private:
  torch::Tensor attend(const torch::Tensor& x, const layers::AttentionMask& mask,
                       torch::Tensor* weights) const;
  torch::Tensor feed(const torch::Tensor& x) const;

  int64_t heads_;
  layers::Activation activation_;
  double attention_dropout_, activation_dropout_, hidden_dropout_;
  bool stable_;
  std::shared_ptr<layers::Linear> key_, value_, query_, attended_, inner_, output_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_, final_norm_;
  std::shared_ptr<torch::nn::LayerNormImpl> adapter_norm_;     ///< null without adapters
  std::shared_ptr<layers::Linear> adapter_down_, adapter_up_;  ///< null without adapters
};

/// A layer norm over the last dimension.
std::shared_ptr<torch::nn::LayerNormImpl> speech_norm(int64_t width, double eps);

}  // namespace gradus
