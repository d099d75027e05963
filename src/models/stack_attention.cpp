#include "models/stack_attention.h"

namespace gradus {

using torch::Tensor;

EncoderStates EncoderStates::behind(const std::vector<Tensor>& inputs, size_t count) {
  if (inputs.size() <= count) return {};
  return {.for_values = inputs[count], .for_keys = inputs[count + 1]};
}

layers::AttentionMask cross_mask(const BackboneInputs& inputs, torch::Device device) {
  if (!inputs.encoder_attention_mask.defined() || !inputs.encoder_hidden_states.defined())
    return {};
  layers::MaskRequest request;
  request.batch = inputs.encoder_hidden_states.size(0);
  request.queries = inputs.rows() / request.batch * inputs.tokens();
  request.keys = inputs.encoder_hidden_states.size(1);
  request.device = device;
  request.attention_mask = inputs.encoder_attention_mask;
  request.causal = false;
  return layers::make_attention_mask(request);
}

std::shared_ptr<layers::Linear> StackAttention::project_in(const char* name, bool with_bias) {
  return register_module(
      name, std::make_shared<layers::Linear>(options_.width, options_.heads * options_.head_width,
                                             with_bias));
}

std::shared_ptr<layers::Linear> StackAttention::project_out(const char* name, bool with_bias) {
  return register_module(
      name, std::make_shared<layers::Linear>(options_.heads * options_.head_width, options_.width,
                                             with_bias));
}

// Queries, keys, values: the dropout of adapters draws in this order, as in transformers.
Tensor StackAttention::forward(const Tensor& x, const StackAttentionPass& pass) const {
  const auto queries = query->forward(x);
  layers::KeyValueCache::States states{by_heads(key->forward(x)), by_heads(value->forward(x))};
  if (pass.cache != nullptr)
    states = pass.cache->update(options_.layer, states.keys, states.values);
  return output->forward(attend(queries, states, pass));
}

Tensor StackAttention::cross(const Tensor& x, const EncoderStates& encoder_states,
                             const StackAttentionPass& pass) const {
  auto queries = query->forward(x);
  const auto* held = pass.cache != nullptr ? pass.cache->cross(options_.layer) : nullptr;
  const auto states = held != nullptr ? *held
                                      : layers::KeyValueCache::States{
                                            by_heads(key->forward(encoder_states.for_keys)),
                                            by_heads(value->forward(encoder_states.for_values))};
  if (pass.cache != nullptr && held == nullptr) pass.cache->set_cross(options_.layer, states);
  const auto rows = x.size(0), tokens = x.size(1), prompts = states.keys.size(0);
  if (rows != prompts) queries = queries.view({prompts, rows / prompts * tokens, -1});
  const auto attended = attend(queries, states, pass);
  return output->forward(rows == prompts ? attended : attended.view({rows, tokens, -1}));
}

Tensor StackAttention::by_heads(const Tensor& x) const {
  return x.view({x.size(0), x.size(1), -1, options_.head_width}).transpose(1, 2);
}

Tensor StackAttention::attend(const Tensor& queries, const layers::KeyValueCache::States& states,
                              const StackAttentionPass& pass) const {
  layers::AttentionOptions options;
  options.scale = options_.scale;
  options.dropout = is_training() ? options_.dropout : 0.0;
  options.position_bias = pass.bias;
  options.key_rows = states.rows;
  Tensor weights;
  if (pass.attentions != nullptr) options.weights = &weights;
  const auto attended =
      layers::attention(by_heads(queries), states.keys, states.values, pass.mask, options);
  if (pass.attentions != nullptr) pass.attentions->push_back(weights);
  return attended;
}

}  // namespace gradus
