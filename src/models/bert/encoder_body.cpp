#include "models/bert/encoder_body.h"

#include <gradus/models/layers/add_layer_norm.h>
#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/module_path.h>

#include <algorithm>
#include <array>

namespace gradus {

using torch::Tensor;

namespace {

layers::AttentionMask mask_of(const BackboneInputs& inputs, torch::Device device, bool causal) {
  layers::MaskRequest request;
  request.batch = inputs.rows();
  request.queries = request.keys = inputs.tokens();
  request.device = device;
  request.attention_mask = inputs.attention_mask;
  request.sequence_ids = inputs.sequence_ids;
  request.causal = causal;
  return layers::make_attention_mask(request);
}

}  // namespace

EncoderBlock::EncoderBlock(const EncoderBlockOptions& options, const EncoderBlockNames& names)
    : options_(options) {
  const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias = true) {
    return layers::register_at(*this, name, std::make_shared<layers::Linear>(in, out, bias));
  };
  const auto norm = [&](const char* name) {
    return layers::register_at(
        *this, name,
        std::make_shared<torch::nn::LayerNormImpl>(
            torch::nn::LayerNormOptions({options.width}).eps(options.norm_eps)));
  };
  query_ = linear(names.query, options.width, options.width, options.attention_bias);
  key_ = linear(names.key, options.width, options.width, options.attention_bias);
  value_ = linear(names.value, options.width, options.width, options.attention_bias);
  attended_ = linear(names.attended, options.width, options.width);
  attention_norm_ = norm(names.attention_norm);
  inner_ = linear(names.inner, options.width, options.inner);
  output_ = linear(names.output, options.inner, options.width);
  output_norm_ = norm(names.output_norm);
}

Tensor EncoderBlock::forward(const Tensor& x, const Pass& pass) const {
  const auto queries = pass.first_only ? x.narrow(1, 0, 1).contiguous() : x;
  const auto attended = layers::dropout(attended_->forward(attention(queries, x, pass)),
                                        options_.attended_dropout, is_training());
  const auto middle = layers::add_layer_norm(attended, queries, *attention_norm_);
  const auto output =
      layers::dropout(output_->forward(options_.activation(inner_->forward(middle))),
                      options_.output_dropout, is_training());
  return layers::add_layer_norm(output, middle, *output_norm_);
}

bool EncoderBlock::adapters_draw() const {
  return std::ranges::any_of(std::array{query_, attended_, inner_, output_}, [](const auto& layer) {
    return layer->adapter && layer->adapter->draws();
  });
}

Tensor EncoderBlock::attention(const Tensor& queries, const Tensor& x, const Pass& pass) const {
  const auto by_heads = [&](const Tensor& y) {
    return y.view({y.size(0), y.size(1), options_.heads, -1}).transpose(1, 2);
  };
  layers::AttentionOptions options;
  options.dropout = is_training() ? options_.attention_dropout : 0.0;
  Tensor weights;
  if (pass.attentions != nullptr) options.weights = &weights;
  const auto query = by_heads(query_->forward(queries)), key = by_heads(key_->forward(x)),
             value = by_heads(value_->forward(x));
  const auto output = pass.attention
                          ? pass.attention(pass.layer, query, key, value, options.weights)
                          : layers::attention(query, key, value, pass.mask, options);
  if (pass.attentions != nullptr) pass.attentions->push_back(weights);
  return output;
}

void EncoderBody::add_blocks(const char* path, int64_t count, const EncoderBlockOptions& options,
                             const EncoderBlockNames& names) {
  width_ = options.width;
  attention_.heads = attention_.key_heads = options.heads;
  attention_.width = options.width / options.heads;
  attention_.dropout = options.attention_dropout;
  attention_.causal = false;
  blocks_ = layers::register_at(*this, path, std::make_shared<layers::ModuleList<EncoderBlock>>());
  for (int64_t i = 0; i < count; ++i)
    blocks_->push_back(std::make_shared<EncoderBlock>(options, names));
}

BackboneOutput EncoderBody::encode(Tensor x, const BackboneInputs& inputs, Sees sees) const {
  EncoderBlock::Pass pass;
  pass.mask = mask_of(inputs, x.device(), sees == Sees::earlier_tokens);
  // A token of padding on the left sees nothing, which transformers makes the mean of everything.
  if (sees == Sees::earlier_tokens && pass.mask.mask.defined())
    pass.mask = {layers::masked_bias(x.new_zeros({1, 1, 1, 1}), pass.mask, x.scalar_type())};
  return run_blocks(std::move(x), inputs, std::move(pass));
}

BackboneOutput EncoderBody::encode(Tensor x, const BackboneInputs& inputs,
                                   EncoderAttention attention) const {
  EncoderBlock::Pass pass;
  pass.attention = std::move(attention);
  return run_blocks(std::move(x), inputs, std::move(pass));
}

BackboneOutput EncoderBody::run_blocks(Tensor x, const BackboneInputs& inputs,
                                       EncoderBlock::Pass pass) const {
  BackboneOutput output;
  if (inputs.output_attentions) pass.attentions = &output.attentions;
  for (const auto& block : *blocks_) {
    const bool recomputed = recomputes(pass.layer, blocks_->size()) && pass.attentions == nullptr;
    if (inputs.output_hidden_states) output.hidden_states.push_back(x);
    if (block == blocks_->last() && inputs.may_leave_out_tokens() && !pass.attention &&
        !pass.mask.causal && !block->adapters_draw()) {
      pass.first_only = true;
      if (pass.mask.mask.defined()) pass.mask.mask = pass.mask.mask.narrow(2, 0, 1);
    }
    if (recomputed)
      x = layers::checkpoint([block, pass](const Tensor& y) { return block->forward(y, pass); }, x,
                             *gradient_checkpointing);
    else
      x = block->forward(x, pass);
    ++pass.layer;
  }
  output.last_hidden_state = x;
  if (inputs.output_hidden_states) output.hidden_states.push_back(x);
  return output;
}

}  // namespace gradus
