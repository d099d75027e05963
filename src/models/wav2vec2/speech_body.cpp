#include "models/wav2vec2/speech_body.h"

#include <gradus/core/error.h>
#include <gradus/core/numpy_random.h>
#include <gradus/models/backbone.h>
#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/span_masks.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus {

using layers::register_at;
using torch::Tensor;

SpeechBody::SpeechBody(SpeechConfig given) : config(std::move(given)) {
  if (config.mask_time_prob > 0 || config.mask_feature_prob > 0)
    masked_spec_embed = register_parameter("masked_spec_embed", at::empty({config.width}));
  convolutions = register_at(*this, "feature_extractor.conv_layers",
                             std::make_shared<layers::ModuleList<SpeechConvLayer>>());
  for (size_t i = 0; i < config.conv_dim.size(); ++i)
    convolutions->push_back(std::make_shared<SpeechConvLayer>(config, i));
  const auto channels = config.conv_dim.back();
  if (config.projection_norm)
    projection_norm_ =
        register_at(*this, "feature_projection.layer_norm", speech_norm(channels, config.norm_eps));
  projection = register_at(*this, "feature_projection.projection",
                           std::make_shared<layers::Linear>(channels, config.width));
  positions_ =
      register_at(*this, "encoder.pos_conv_embed", std::make_shared<SpeechPositions>(config));
  encoder_norm_ =
      register_at(*this, "encoder.layer_norm", speech_norm(config.width, config.norm_eps));
  blocks_ =
      register_at(*this, "encoder.layers", std::make_shared<layers::ModuleList<SpeechBlock>>());
  for (int64_t i = 0; i < config.blocks; ++i)
    blocks_->push_back(std::make_shared<SpeechBlock>(config));
  if (!config.has_adapter) return;
  if (config.output_width != config.width) {
    adapter_projection_ = register_at(
        *this, "adapter.proj", std::make_shared<layers::Linear>(config.width, config.output_width));
    adapter_norm_ =
        register_at(*this, "adapter.proj_layer_norm", speech_norm(config.output_width, 1e-5));
  }
  const SpeechConvOptions conv{config.output_width, 2 * config.output_width, config.adapter_kernel,
                               config.adapter_stride, 1};
  for (int64_t i = 0; i < config.adapter_layers; ++i)
    adapter_.push_back(register_at(*this, fmt::format("adapter.layers.{}.conv", i),
                                   std::make_shared<SpeechConv>(conv)));
}

Tensor SpeechBody::frames_of(Tensor samples, bool with_adapter) const {
  const auto after = [&](int64_t kernel, int64_t stride) {
    samples = at::floor_divide(samples - kernel, stride) + 1;
  };
  for (size_t i = 0; i < config.conv_kernel.size(); ++i)
    after(config.conv_kernel[i], config.conv_stride[i]);
  if (with_adapter && config.has_adapter)
    for (int64_t i = 0; i < config.adapter_layers; ++i) after(1, config.adapter_stride);
  return samples;
}

Tensor SpeechBody::mask_of(const Tensor& lengths, int64_t frames) {
  // A row without a frame of its own sees all of them, as in transformers, where its last place is
  // counted from the end.
  const auto ends = at::where(lengths > 0, lengths, lengths + frames);
  return at::arange(frames, lengths.options()).unsqueeze(0) < ends.unsqueeze(1);
}

SpeechOutput SpeechBody::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto& sound = inputs["input_values"];
  if (sound.dim() != 2 || config.frames(sound.size(1), /*with_adapter=*/false) < 1)
    throw Error("G-MODEL-11", ErrorKind::model,
                fmt::format("input_values has shape [{}], expected [rows, samples] and enough "
                            "samples for one frame",
                            fmt::join(sound.sizes(), ", ")),
                "Leave out clips that are too short (--min_duration_in_seconds).");
  auto x = sound.to(projection->weight.scalar_type()).unsqueeze(1);
  for (const auto& layer : *convolutions) x = layer->forward(x);
  x = x.transpose(1, 2);

  SpeechOutput output;
  const auto mask = needed_mask(inputs, "attention_mask", sound.size(0), sound.size(1));
  if (mask.defined()) {
    output.lengths = frames_of(mask.to(torch::kLong).sum(-1), /*with_adapter=*/false);
    output.frame_mask = mask_of(output.lengths, x.size(1));
  }
  if (projection_norm_) x = projection_norm_->forward(x);
  output.extract_features = x;
  x = layers::dropout(projection->forward(x), config.projection_dropout, is_training());
  x = encode(masked(x, output, inputs), output, options);
  output.last_hidden_state = adapted(x);
  return output;
}

Tensor SpeechBody::masked(Tensor x, const SpeechOutput& output, const Batch& inputs) const {
  if (!config.spec_augment) return x;
  Tensor time;
  if (const auto* given = inputs.find("mask_time_indices")) {
    time = given->to(torch::kBool);
  } else if (config.mask_time_prob > 0 && is_training()) {
    SpanMaskOptions options{config.mask_time_prob, config.mask_time_length,
                            config.mask_time_min_masks};
    if (output.frame_mask.defined() && config.family->masks_within_audio) {
      const auto counts = output.frame_mask.sum(-1).to(torch::kCPU).contiguous();
      const auto* first = counts.const_data_ptr<int64_t>();
      options.lengths.emplace(first, first + counts.numel());
    }
    time = compute_mask_indices(x.size(0), x.size(1), options, numpy_random()).to(x.device());
  }
  if (time.defined()) {
    if (!masked_spec_embed.defined())
      throw Error("G-MODEL-5", ErrorKind::model,
                  "config.json: mask_time_prob must be above 0 for a batch with mask_time_indices",
                  "A model whose mask_time_prob and mask_feature_prob are 0 cannot mask frames.");
    x = at::where(time.unsqueeze(-1), masked_spec_embed.to(x.scalar_type()), x);
  }
  if (config.mask_feature_prob > 0 && is_training()) {
    const SpanMaskOptions options{config.mask_feature_prob, config.mask_feature_length,
                                  config.mask_feature_min_masks};
    const auto features =
        compute_mask_indices(x.size(0), x.size(2), options, numpy_random()).to(x.device());
    x = x.masked_fill(features.unsqueeze(1), 0);
  }
  return x;
}

Tensor SpeechBody::encode(Tensor x, SpeechOutput& output, const ForwardOptions& options) const {
  layers::MaskRequest request;
  request.batch = x.size(0);
  request.queries = request.keys = x.size(1);
  request.device = x.device();
  request.causal = false;
  if (output.frame_mask.defined()) {
    x = x.masked_fill(output.frame_mask.logical_not().unsqueeze(-1), 0);
    request.attention_mask = output.frame_mask;
  }
  const auto mask = layers::make_attention_mask(request);
  x = x + positions_->forward(x);
  if (!config.stable_norm) x = encoder_norm_->forward(x);
  x = layers::dropout(x, config.hidden_dropout, is_training());
  for (int64_t i = 0; const auto& block : *blocks_) {
    const auto index = i++;
    if (options.output_hidden_states) output.hidden_states.push_back(x);
    // Drawn in evaluation, too, as transformers does: later numbers are then the same.
    const auto drawn = at::rand({}).item<float>();
    if (is_training() && drawn < static_cast<float>(config.layerdrop)) continue;
    Tensor weights;
    const bool recomputed =
        gradient_checkpointing && is_training() && !options.output_attentions &&
        gradient_checkpointing->recomputes(index, static_cast<int64_t>(blocks_->size()));
    x = recomputed
            ? layers::checkpoint([block, mask](const Tensor& y) { return block->forward(y, mask); },
                                 x, *gradient_checkpointing)
            : block->forward(x, mask, options.output_attentions ? &weights : nullptr);
    if (options.output_attentions) output.attentions.push_back(weights);
  }
  if (options.output_hidden_states) output.hidden_states.push_back(x);
  return config.stable_norm ? encoder_norm_->forward(x) : x;
}

Tensor SpeechBody::adapted(Tensor x) const {
  if (!config.has_adapter) return x;
  if (adapter_projection_) x = adapter_norm_->forward(adapter_projection_->forward(x));
  x = x.transpose(1, 2);
  for (const auto& conv : adapter_) {
    const auto drawn = numpy_random().rand();
    if (!is_training() || drawn > config.layerdrop) x = at::glu(conv->forward(x), 1);
  }
  return x.transpose(1, 2);
}

}  // namespace gradus
