#include "models/bart/bart_stack.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/layers/add_layer_norm.h>
#include <gradus/models/layers/checkpoint.h>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "models/bert/bert_config.h"
#include "models/stack_attention.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr int64_t kPositionOffset = 2;  // the first rows of the table are never used

std::shared_ptr<torch::nn::LayerNormImpl> bart_norm(int64_t width) {
  return std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({width}));
}

layers::AttentionMask bart_self_mask(const BackboneInputs& inputs, bool is_decoder, int64_t seen,
                                     torch::Device device) {
  layers::MaskRequest request;
  request.batch = inputs.rows();
  request.queries = inputs.tokens();
  request.keys = seen + inputs.tokens();
  request.device = device;
  request.attention_mask = inputs.attention_mask;
  request.causal = is_decoder;
  return layers::make_attention_mask(request);
}

class BartAttention : public StackAttention {
 public:
  BartAttention(const BartConfig& config, int64_t heads, size_t layer)
      : StackAttention(
            {config.width, heads, config.width / heads, layer, config.attention_dropout}) {
    key = project_in("k_proj", true);
    value = project_in("v_proj", true);
    query = project_in("q_proj", true);
    output = project_out("out_proj", true);
  }
};

}  // namespace

/// What the blocks of one forward pass share and what needs no gradient.
struct BartPass {
  StackAttentionPass self, cross;
};

class BartBlock : public torch::nn::Module {
 public:
  BartBlock(const BartConfig& config, const BartConfig::StackSizes& sizes, size_t layer,
            bool is_decoder)
      : activation_(config.activation),
        dropout_(config.dropout),
        activation_dropout_(config.activation_dropout),
        norms_first_(config.multilingual) {
    self_ =
        register_module("self_attn", std::make_shared<BartAttention>(config, sizes.heads, layer));
    self_norm_ = register_module("self_attn_layer_norm", bart_norm(config.width));
    if (is_decoder) {
      cross_ = register_module("encoder_attn",
                               std::make_shared<BartAttention>(config, sizes.heads, layer));
      cross_norm_ = register_module("encoder_attn_layer_norm", bart_norm(config.width));
    }
    inner_ = register_module("fc1", std::make_shared<layers::Linear>(config.width, sizes.inner));
    outer_ = register_module("fc2", std::make_shared<layers::Linear>(sizes.inner, config.width));
    final_norm_ = register_module("final_layer_norm", bart_norm(config.width));
  }

  Tensor forward(Tensor x, const EncoderStates& encoder_states, const BartPass& pass) const {
    x = with_residual(x, *self_norm_,
                      [&](const Tensor& y) { return self_->forward(y, pass.self); });
    if (cross_ && encoder_states.defined())
      x = with_residual(x, *cross_norm_, [&](const Tensor& y) {
        return cross_->cross(y, encoder_states, pass.cross);
      });
    return with_residual(x, *final_norm_, [&](const Tensor& y) {
      return outer_->forward(
          layers::dropout(activation_(inner_->forward(y)), activation_dropout_, is_training()));
    });
  }

 private:
  template <class Layer>
  Tensor with_residual(const Tensor& x, torch::nn::LayerNormImpl& norm, const Layer& layer) const {
    const auto y =
        layers::dropout(layer(norms_first_ ? norm.forward(x) : x), dropout_, is_training());
    return norms_first_ ? x + y : layers::add_layer_norm(y, x, norm);
  }

  layers::Activation activation_;
  double dropout_, activation_dropout_;
  bool norms_first_;
  std::shared_ptr<BartAttention> self_, cross_;
  std::shared_ptr<layers::Linear> inner_, outer_;
  std::shared_ptr<torch::nn::LayerNormImpl> self_norm_, cross_norm_, final_norm_;
};

BartConfig::BartConfig(const nlohmann::json& values) {
  const ConfigReader read(values, "config.json",
                          {{"d_model", "hidden_size"},
                           {"encoder_attention_heads", "num_attention_heads"},
                           {"encoder_layers", "num_hidden_layers"}});
  multilingual = read.text("model_type", "bart") == "mbart";
  vocabulary = read.integer("vocab_size", 50265);
  width = read.integer("d_model", 1024);
  positions = read.integer("max_position_embeddings", 1024);
  const auto stack = [&](const std::string& name) {
    StackSizes sizes{
        read.integer(name + "_layers", 12, 1, 10000), read.integer(name + "_attention_heads", 16),
        read.integer(name + "_ffn_dim", 4096), read.probability(name + "_layerdrop", 0.0)};
    if (width % sizes.heads != 0)
      read.fail("d_model",
                "a multiple of " + name + "_attention_heads (" + std::to_string(sizes.heads) + ")",
                std::to_string(width));
    return sizes;
  };
  encoder = stack("encoder");
  decoder = stack("decoder");
  activation = layers::activation_named(read.text("activation_function", "gelu"));
  dropout = read.probability("dropout", 0.1);
  attention_dropout = read.probability("attention_dropout", 0.0);
  activation_dropout = read.probability("activation_dropout", 0.0);
  classifier_dropout = read.probability("classifier_dropout", 0.0);
  embedding_scale =
      read.flag("scale_embedding", false) ? std::sqrt(static_cast<double>(width)) : 1.0;
  tied = read.flag("tie_word_embeddings", true);
  padding_index = padding_row(values, vocabulary, 1);
}

BartStack::BartStack(const BartConfig& config, bool is_decoder)
    : width_(config.width),
      dropout_(config.dropout),
      scale_(config.embedding_scale),
      is_decoder_(is_decoder),
      multilingual_(config.multilingual) {
  const auto& sizes = is_decoder ? config.decoder : config.encoder;
  layerdrop_ = sizes.layerdrop;
  embed_tokens_ = register_module(
      "embed_tokens",
      std::make_shared<layers::Embedding>(config.vocabulary, config.width, config.padding_index,
                                          is_decoder ? "decoder_input_ids" : "input_ids"));
  embed_positions_ = register_module(
      "embed_positions",
      std::make_shared<layers::Embedding>(config.positions + kPositionOffset, config.width,
                                          std::nullopt, "position_ids"));
  layers_ = register_module("layers", std::make_shared<layers::ModuleList<BartBlock>>());
  for (int64_t i = 0; i < sizes.blocks; ++i)
    layers_->push_back(
        std::make_shared<BartBlock>(config, sizes, static_cast<size_t>(i), is_decoder));
  layernorm_embedding_ = register_module("layernorm_embedding", bart_norm(config.width));
  if (multilingual_) layer_norm_ = register_module("layer_norm", bart_norm(config.width));
}

std::optional<int64_t> BartStack::position_limit() const {
  return embed_positions_->weight.size(0) - kPositionOffset;
}

Tensor BartStack::embedded(const BackboneInputs& inputs) {
  if (scale_ == 1.0 || inputs.inputs_embeds.defined()) return embed(inputs);
  const auto embeddings = embed_tokens_->forward(inputs.input_ids) * scale_;
  return embedding_noise && is_training() ? add_embedding_noise(embeddings, *embedding_noise)
                                          : embeddings;
}

/// fp16 only, in the encoder: what overflowed comes back into range, as in transformers.
Tensor BartStack::within_range(const Tensor& x) const {
  if (is_decoder_ || x.scalar_type() != torch::kHalf) return x;
  constexpr double kLimit = 64504.0;
  if (multilingual_) return x.clamp(-kLimit, kLimit);
  const auto limit =
      at::where(at::isfinite(x).all(), x.new_full({}, std::numeric_limits<double>::infinity()),
                x.new_full({}, kLimit));
  return x.clamp(std::optional<Tensor>(-limit), std::optional<Tensor>(limit));
}

BackboneOutput BartStack::forward(const BackboneInputs& inputs) {
  const auto seen = inputs.cache != nullptr ? inputs.cache->length() : 0;
  const auto first = seen + kPositionOffset;
  const bool is_placed = inputs.cache != nullptr && inputs.cache->place().defined();
  const auto positions =
      is_placed
          ? embed_positions_->forward(inputs.cache->place() + kPositionOffset)
          : embed_positions_->first(first + inputs.tokens()).narrow(0, first, inputs.tokens());
  auto x = layers::dropout(layernorm_embedding_->forward(embedded(inputs) + positions), dropout_,
                           is_training());
  BackboneOutput output;
  BartPass pass;
  pass.self.cache = pass.cross.cache = inputs.cache;
  pass.self.mask = bart_self_mask(inputs, is_decoder_, seen, x.device());
  pass.cross.mask = cross_mask(inputs, x.device());
  if (inputs.output_attentions) {
    pass.self.attentions = &output.attentions;
    pass.cross.attentions = &output.cross_attentions;
  }
  std::vector<Tensor> given{x};
  if (is_decoder_ && inputs.encoder_hidden_states.defined())
    EncoderStates::append(inputs.encoder_hidden_states, given);
  for (size_t i = 0; const auto& block : *layers_) {
    const bool recomputed = recomputes(i++, layers_->size()) && !inputs.output_attentions;
    if (inputs.output_hidden_states) output.hidden_states.push_back(given[0]);
    // Drawn in any case, so that the random numbers after it are those of transformers.
    if (is_training() && at::rand({}, torch::kFloat).item<float>() < layerdrop_) continue;
    const auto run = [block, pass](const std::vector<Tensor>& tensors) {
      return block->forward(tensors[0], EncoderStates::behind(tensors, 1), pass);
    };
    given[0] = within_range(recomputed ? layers::checkpoint(run, given, *gradient_checkpointing)
                                       : run(given));
  }
  output.last_hidden_state = layer_norm_ ? layer_norm_->forward(given[0]) : given[0];
  if (inputs.output_hidden_states) output.hidden_states.push_back(output.last_hidden_state);
  return output;
}

}  // namespace gradus
