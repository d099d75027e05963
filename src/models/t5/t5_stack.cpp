#include "models/t5/t5_stack.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/layers/checkpoint.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "models/stack_attention.h"

namespace gradus {

using torch::Tensor;

namespace {

/// fp16 only: what overflowed comes back into range, as in transformers.
Tensor within_half(const Tensor& x) {
  if (x.scalar_type() != torch::kHalf) return x;
  const auto limit =
      at::where(at::isinf(x).any(), x.new_full({}, 64504.0), x.new_full({}, 65504.0));
  return x.clamp(std::optional<Tensor>(-limit), std::optional<Tensor>(limit));
}

}  // namespace

/// What the blocks of one forward pass share and what needs no gradient.
struct T5Pass {
  StackAttentionPass self;   ///< its bias is an input of the block
  StackAttentionPass cross;  ///< its bias forbids the encoder's padding
};

class T5Attention : public StackAttention {
 public:
  T5Attention(const T5Config& config, size_t layer, bool with_positions)
      : StackAttention(
            {config.width, config.heads, config.head_width, layer, config.dropout, 1.0}) {
    query = project_in("q", false);
    key = project_in("k", false);
    value = project_in("v", false);
    output = project_out("o", false);
    if (with_positions)
      relative_attention_bias =
          register_module("relative_attention_bias",
                          std::make_shared<layers::Embedding>(config.buckets, config.heads,
                                                              std::nullopt, "relative positions"));
  }

  std::shared_ptr<layers::Embedding>
      relative_attention_bias;  ///< first block only; its biases serve all
};

class T5Dense : public torch::nn::Module {
 public:
  explicit T5Dense(const T5Config& config)
      : activation_(config.activation), dropout_(config.dropout) {
    wi = register_module(config.gated ? "wi_0" : "wi",
                         std::make_shared<layers::Linear>(config.width, config.inner, false));
    if (config.gated)
      wi_1 = register_module("wi_1",
                             std::make_shared<layers::Linear>(config.width, config.inner, false));
    wo = register_module("wo", std::make_shared<layers::Linear>(config.inner, config.width, false));
  }
  Tensor forward(const Tensor& x) const {
    auto inner = activation_(wi->forward(x));
    if (wi_1) inner = inner * wi_1->forward(x);
    return wo->forward(layers::dropout(inner, dropout_, is_training()));
  }

  std::shared_ptr<layers::Linear> wi, wi_1, wo;

 private:
  layers::Activation activation_;
  double dropout_;
};

/// One of the layers of a block: a module, and the norm before it.
template <class Inner>
class T5Layer : public torch::nn::Module {
 public:
  T5Layer(const char* name, std::shared_ptr<Inner> module, const T5Config& config) {
    inner = register_module(name, std::move(module));
    norm = register_module("layer_norm",
                           std::make_shared<layers::RMSNorm>(config.width, config.norm_eps));
  }
  std::shared_ptr<Inner> inner;
  std::shared_ptr<layers::RMSNorm> norm;
};

class T5Block : public torch::nn::Module {
 public:
  T5Block(const T5Config& config, size_t index, bool is_decoder) : dropout_(config.dropout) {
    const auto layer =
        register_module("layer", std::make_shared<layers::ModuleList<torch::nn::Module>>());
    self_ = std::make_shared<T5Layer<T5Attention>>(
        "SelfAttention", std::make_shared<T5Attention>(config, index, index == 0), config);
    layer->push_back(self_);
    if (is_decoder) {
      cross_ = std::make_shared<T5Layer<T5Attention>>(
          "EncDecAttention", std::make_shared<T5Attention>(config, index, false), config);
      layer->push_back(cross_);
    }
    dense_ = std::make_shared<T5Layer<T5Dense>>("DenseReluDense", std::make_shared<T5Dense>(config),
                                                config);
    layer->push_back(dense_);
  }

  Tensor forward(Tensor x, const Tensor& bias, const EncoderStates& encoder_states,
                 const T5Pass& pass) const {
    auto own = pass.self;
    own.bias = bias;
    x = within_half(x + dropped(self_->inner->forward(self_->norm->forward(x), own)));
    if (cross_ && encoder_states.defined())
      x = within_half(
          x + dropped(cross_->inner->cross(cross_->norm->forward(x), encoder_states, pass.cross)));
    return within_half(x + dropped(dense_->inner->forward(dense_->norm->forward(x))));
  }

  /// The table of biases; the first block has one.
  const layers::Embedding& positions() const { return *self_->inner->relative_attention_bias; }

 private:
  Tensor dropped(const Tensor& x) const { return layers::dropout(x, dropout_, is_training()); }

  std::shared_ptr<T5Layer<T5Attention>> self_, cross_;
  std::shared_ptr<T5Layer<T5Dense>> dense_;
  double dropout_;
};

namespace {

Tensor self_bias(const BackboneInputs& inputs, const layers::Embedding& table, bool is_decoder,
                 int64_t max_distance, const Tensor& x) {
  layers::MaskRequest request;
  request.batch = inputs.rows();
  request.queries = inputs.tokens();
  request.keys = (inputs.cache != nullptr ? inputs.cache->length() : 0) + inputs.tokens();
  request.device = x.device();
  request.attention_mask = inputs.attention_mask;
  request.causal = is_decoder;
  const auto options = torch::TensorOptions().dtype(torch::kLong).device(x.device());
  const auto keys = at::arange(request.keys, options);
  const bool is_placed = inputs.cache != nullptr && inputs.cache->place().defined();
  const auto queries = is_placed ? inputs.cache->place()
                                 : keys.narrow(0, request.keys - request.queries, request.queries);
  const auto buckets = relative_position_buckets(keys.unsqueeze(0) - queries.unsqueeze(1),
                                                 !is_decoder, table.weight.size(0), max_distance);
  const auto bias = table.forward(buckets).permute({2, 0, 1}).unsqueeze(0);
  const auto masked =
      layers::masked_bias(bias, layers::make_attention_mask(request), x.scalar_type());
  return x.is_cuda() ? masked.contiguous() : masked;  // once for the kernels of all blocks
}

/// Zero where the encoder's tokens are text; undefined when all are.
Tensor cross_bias(const BackboneInputs& inputs, const Tensor& x) {
  const auto mask = cross_mask(inputs, x.device());
  return mask.mask.defined()
             ? layers::masked_bias(at::zeros({1, 1, 1, 1}, x.options()), mask, x.scalar_type())
             : Tensor();
}

}  // namespace

T5Config::T5Config(const nlohmann::json& values) {
  const ConfigReader read(values, "config.json",
                          {{"d_model", "hidden_size"},
                           {"num_heads", "num_attention_heads"},
                           {"num_layers", "num_hidden_layers"},
                           {"d_kv", "head_dim"}});
  const bool multilingual = read.text("model_type", "t5") == "mt5";
  vocabulary = read.integer("vocab_size", multilingual ? 250112 : 32128);
  width = read.integer("d_model", 512);
  head_width = read.integer("d_kv", 64);
  inner = read.integer("d_ff", multilingual ? 1024 : 2048);
  encoder_blocks = read.integer("num_layers", multilingual ? 8 : 6, 1, 10000);
  decoder_blocks = read.integer("num_decoder_layers", encoder_blocks, 1, 10000);
  heads = read.integer("num_heads", multilingual ? 6 : 8);
  buckets = read.integer("relative_attention_num_buckets", 32, 4);
  max_distance = read.integer("relative_attention_max_distance", 128);
  if (max_distance <= buckets / 2)
    read.fail("relative_attention_max_distance",
              "more than half of relative_attention_num_buckets (" + std::to_string(buckets) + ")",
              std::to_string(max_distance));
  dropout = read.probability("dropout_rate", 0.1);
  classifier_dropout = read.probability("classifier_dropout", 0.0);
  norm_eps = read.number("layer_norm_epsilon", 1e-6, 0.0);
  init_factor = read.number("initializer_factor", 1.0, 0.0);
  const auto projection = read.text("feed_forward_proj", multilingual ? "gated-gelu" : "relu");
  const auto dash = projection.find('-');
  if (dash != std::string::npos && (projection.substr(0, dash) != "gated" ||
                                    projection.find('-', dash + 1) != std::string::npos))
    read.fail("feed_forward_proj", "an activation or gated- and an activation (relu, gated-gelu)",
              '"' + projection + '"');
  gated = read.flag("is_gated_act", dash != std::string::npos || projection == "gated");
  const auto name = projection == "gated-gelu"  ? "gelu_new"
                    : dash == std::string::npos ? projection
                                                : projection.substr(dash + 1);
  activation = layers::activation_named(read.text("dense_act_fn", name));
  // transformers ties the head in any case and reads from this flag whether to scale.
  scale_outputs =
      !multilingual && read.flag("scale_decoder_outputs", read.flag("tie_word_embeddings", true));
}

Tensor relative_position_buckets(Tensor positions, bool bidirectional, int64_t buckets,
                                 int64_t max_distance) {
  Tensor result;
  if (bidirectional) {
    buckets /= 2;
    result = positions.gt(0).to(torch::kLong) * buckets;
    positions = positions.abs();
  } else {
    positions = -positions.clamp_max(0);
  }
  const auto exact = buckets / 2;
  const auto steps = (positions.to(torch::kFloat) / exact).log() /
                     std::log(static_cast<double>(max_distance) / static_cast<double>(exact)) *
                     (buckets - exact);
  const auto far = (steps.clamp_min(0.0).to(torch::kLong) + exact).clamp_max(buckets - 1);
  const auto near_or_far = at::where(positions < exact, positions, far);
  return result.defined() ? result + near_or_far : near_or_far;
}

T5Stack::T5Stack(const T5Config& config, bool is_decoder)
    : width_(config.width),
      dropout_(config.dropout),
      max_distance_(config.max_distance),
      is_decoder_(is_decoder) {
  embed_tokens_ = register_module(
      "embed_tokens",
      std::make_shared<layers::Embedding>(config.vocabulary, config.width, std::nullopt,
                                          is_decoder ? "decoder_input_ids" : "input_ids"));
  block_ = register_module("block", std::make_shared<layers::ModuleList<T5Block>>());
  const auto blocks = is_decoder ? config.decoder_blocks : config.encoder_blocks;
  for (int64_t i = 0; i < blocks; ++i)
    block_->push_back(std::make_shared<T5Block>(config, static_cast<size_t>(i), is_decoder));
  final_layer_norm_ = register_module(
      "final_layer_norm", std::make_shared<layers::RMSNorm>(config.width, config.norm_eps));
}

BackboneOutput T5Stack::forward(const BackboneInputs& inputs) {
  auto x = layers::dropout(embed(inputs), dropout_, is_training());
  BackboneOutput output;
  T5Pass pass;
  pass.self.cache = pass.cross.cache = inputs.cache;
  pass.cross.bias = cross_bias(inputs, x);
  if (inputs.output_attentions) {
    pass.self.attentions = &output.attentions;
    pass.cross.attentions = &output.cross_attentions;
  }
  std::vector<Tensor> given{
      x, self_bias(inputs, (*block_)[0].positions(), is_decoder_, max_distance_, x)};
  if (is_decoder_ && inputs.encoder_hidden_states.defined())
    EncoderStates::append(inputs.encoder_hidden_states, given);
  for (size_t i = 0; const auto& block : *block_) {
    const bool recomputed = recomputes(i++, block_->size()) && !inputs.output_attentions;
    if (inputs.output_hidden_states) output.hidden_states.push_back(given[0]);
    const auto run = [block, pass](const std::vector<Tensor>& tensors) {
      return block->forward(tensors[0], tensors[1], EncoderStates::behind(tensors, 2), pass);
    };
    given[0] = recomputed ? layers::checkpoint(run, given, *gradient_checkpointing) : run(given);
  }
  output.last_hidden_state =
      layers::dropout(final_layer_norm_->forward(given[0]), dropout_, is_training());
  if (inputs.output_hidden_states) output.hidden_states.push_back(output.last_hidden_state);
  return output;
}

bool init_t5_module(torch::nn::Module& module, const Initializer& initializer,
                    const T5Config& config) {
  const auto factor = config.init_factor;
  const auto by = [&](int64_t size) { return factor / std::sqrt(static_cast<double>(size)); };
  if (const auto* norm = dynamic_cast<layers::RMSNorm*>(&module)) {
    initializer.constant(norm->weight, factor);
  } else if (const auto* dense = dynamic_cast<T5Dense*>(&module)) {
    initializer.normal(dense->wi->weight, by(config.width));
    if (dense->wi_1) initializer.normal(dense->wi_1->weight, by(config.width));
    initializer.normal(dense->wo->weight, by(config.inner));
  } else if (const auto* attention = dynamic_cast<T5Attention*>(&module)) {
    initializer.normal(attention->query->weight, by(config.width * config.head_width));
    initializer.normal(attention->key->weight, by(config.width));
    initializer.normal(attention->value->weight, by(config.width));
    initializer.normal(attention->output->weight, by(config.heads * config.head_width));
    if (attention->relative_attention_bias)
      initializer.normal(attention->relative_attention_bias->weight, by(config.width));
  } else {
    return false;
  }
  return true;
}

}  // namespace gradus
