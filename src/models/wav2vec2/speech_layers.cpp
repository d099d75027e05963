#include "models/wav2vec2/speech_layers.h"

#include <gradus/models/layers/add_layer_norm.h>
#include <gradus/models/layers/module_path.h>

#include <ATen/ops/_weight_norm.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>

namespace gradus {

using layers::register_at;
using torch::Tensor;

SpeechConv::SpeechConv(const SpeechConvOptions& given) : options(given) {
  weight = register_parameter(
      "weight", at::empty({options.out, options.in / options.groups, options.kernel}));
  if (options.bias) bias = register_parameter("bias", at::empty({options.out}));
}

Tensor SpeechConv::forward(const Tensor& x) const {
  return at::conv1d(x, weight, bias, options.stride, options.padding, 1, options.groups);
}

WeightNormConv::WeightNormConv(const SpeechConvOptions& given) : options(given) {
  bias = register_parameter("bias", at::empty({options.out}));
  auto& weight = layers::module_at(*this, "parametrizations.weight");
  length = weight.register_parameter("original0", at::empty({1, 1, options.kernel}));
  direction = weight.register_parameter(
      "original1", at::empty({options.out, options.in / options.groups, options.kernel}));
}

Tensor WeightNormConv::forward(const Tensor& x) const {
  return at::conv1d(x, at::_weight_norm(direction, length, 2), bias, options.stride,
                    options.padding, 1, options.groups);
}

std::shared_ptr<torch::nn::LayerNormImpl> speech_norm(int64_t width, double eps) {
  return std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({width}).eps(eps));
}

SpeechConvLayer::SpeechConvLayer(const SpeechConfig& config, size_t index)
    : activation_(config.conv_activation) {
  SpeechConvOptions options;
  options.in = index == 0 ? 1 : config.conv_dim[index - 1];
  options.out = config.conv_dim[index];
  options.kernel = config.conv_kernel[index];
  options.stride = config.conv_stride[index];
  options.bias = config.conv_bias;
  conv_ = register_module("conv", std::make_shared<SpeechConv>(options));
  if (!config.is_group_norm)
    layer_norm_ = register_module("layer_norm", speech_norm(options.out, 1e-5));
  else if (index == 0)
    group_norm_ =
        register_module("layer_norm", std::make_shared<torch::nn::GroupNormImpl>(
                                          torch::nn::GroupNormOptions(options.out, options.out)));
}

Tensor SpeechConvLayer::forward(const Tensor& x) const {
  auto y = conv_->forward(x);
  if (group_norm_) y = group_norm_->forward(y);
  if (layer_norm_) y = layer_norm_->forward(y.transpose(-2, -1)).transpose(-2, -1);
  return activation_(y);
}

SpeechPositions::SpeechPositions(const SpeechConfig& config)
    : activation_(config.conv_activation), drops_last_(config.positions % 2 == 0) {
  SpeechConvOptions options;
  options.in = options.out = config.width;
  options.kernel = config.positions;
  options.padding = config.positions / 2;
  options.groups = config.position_groups;
  if (!config.position_batch_norm) {
    conv_ = register_module("conv", std::make_shared<WeightNormConv>(options));
    return;
  }
  plain_conv_ = register_module("conv", std::make_shared<SpeechConv>(options));
  batch_norm_ =
      register_module("batch_norm", std::make_shared<torch::nn::BatchNorm1dImpl>(config.width));
}

Tensor SpeechPositions::forward(const Tensor& x) const {
  auto y = x.transpose(1, 2);
  if (batch_norm_) y = batch_norm_->forward(y);
  y = conv_ ? conv_->forward(y) : plain_conv_->forward(y);
  if (drops_last_) y = y.narrow(2, 0, y.size(2) - 1);
  return activation_(y).transpose(1, 2);
}

SpeechBlock::SpeechBlock(const SpeechConfig& config)
    : heads_(config.heads),
      activation_(config.activation),
      attention_dropout_(config.attention_dropout),
      activation_dropout_(config.activation_dropout),
      hidden_dropout_(config.hidden_dropout),
      stable_(config.stable_norm) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_at(*this, name, std::make_shared<layers::Linear>(in, out));
  };
  const auto width = config.width;
  key_ = linear("attention.k_proj", width, width);
  value_ = linear("attention.v_proj", width, width);
  query_ = linear("attention.q_proj", width, width);
  attended_ = linear("attention.out_proj", width, width);
  norm_ = register_module("layer_norm", speech_norm(width, config.norm_eps));
  inner_ = linear("feed_forward.intermediate_dense", width, config.inner);
  output_ = linear("feed_forward.output_dense", config.inner, width);
  final_norm_ = register_module("final_layer_norm", speech_norm(width, config.norm_eps));
  if (config.attention_adapter == 0) return;
  adapter_norm_ = register_at(*this, "adapter_layer.norm", speech_norm(width, 1e-5));
  adapter_down_ = linear("adapter_layer.linear_1", width, config.attention_adapter);
  adapter_up_ = linear("adapter_layer.linear_2", config.attention_adapter, width);
}

Tensor SpeechBlock::attend(const Tensor& x, const layers::AttentionMask& mask,
                           Tensor* weights) const {
  const auto by_heads = [&](const Tensor& y) {
    return y.view({y.size(0), y.size(1), heads_, -1}).transpose(1, 2);
  };
  layers::AttentionOptions options;
  options.dropout = is_training() ? attention_dropout_ : 0.0;
  options.weights = weights;
  // In this order: the dropout of adapters draws, and arguments have none.
  const auto query = by_heads(query_->forward(x)), key = by_heads(key_->forward(x)),
             value = by_heads(value_->forward(x));
  const auto y = layers::attention(query, key, value, mask, options);
  return layers::dropout(attended_->forward(y), hidden_dropout_, is_training());
}

Tensor SpeechBlock::feed(const Tensor& x) const {
  const auto inner =
      layers::dropout(activation_(inner_->forward(x)), activation_dropout_, is_training());
  return layers::dropout(output_->forward(inner), hidden_dropout_, is_training());
}

Tensor SpeechBlock::forward(const Tensor& x, const layers::AttentionMask& mask,
                            Tensor* weights) const {
  if (!stable_) {
    const auto y = layers::add_layer_norm(attend(x, mask, weights), x, *norm_);
    return layers::add_layer_norm(feed(y), y, *final_norm_);
  }
  auto y = x + attend(norm_->forward(x), mask, weights);
  y = y + feed(final_norm_->forward(y));
  if (adapter_norm_)
    y = y + adapter_up_->forward(at::relu(adapter_down_->forward(adapter_norm_->forward(y))));
  return y;
}

}  // namespace gradus
