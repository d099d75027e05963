#include "models/gpt2/gpt2.h"

#include <gradus/kernels/fused.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/heads.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/layers/residual_stream.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

namespace gradus {

using torch::Tensor;

namespace {

struct GPT2Config {
  explicit GPT2Config(const nlohmann::json& values) {
    const ConfigReader read(values, "config.json",
                            {{"n_embd", "hidden_size"},
                             {"n_positions", "max_position_embeddings"},
                             {"n_head", "num_attention_heads"},
                             {"n_layer", "num_hidden_layers"}});
    vocabulary = read.integer("vocab_size", 50257);
    positions = read.integer("n_positions", 1024);
    width = read.integer("n_embd", 768);
    blocks = read.integer("n_layer", 12, 1, 10000);
    heads = read.integer("n_head", 12);
    inner = read.optional_integer("n_inner").value_or(4 * width);
    activation = layers::activation_named(read.text("activation_function", "gelu_new"));
    residual_dropout = read.probability("resid_pdrop", 0.1);
    embedding_dropout = read.probability("embd_pdrop", 0.1);
    attention_dropout = read.probability("attn_pdrop", 0.1);
    norm_eps = read.number("layer_norm_epsilon", 1e-5, 0.0);
    scale_weights = read.flag("scale_attn_weights", true);
    scale_by_layer = read.flag("scale_attn_by_inverse_layer_idx", false);
    tied = read.flag("tie_word_embeddings", true);
    if (width % heads != 0)
      read.fail("n_embd", "a multiple of n_head (" + std::to_string(heads) + ")",
                std::to_string(width));
    if (read.flag("add_cross_attention", false))
      read.fail("add_cross_attention", "false: cross-attention is not supported", "true");
  }

  int64_t vocabulary, positions, width, blocks, heads, inner;
  layers::Activation activation;
  double residual_dropout, embedding_dropout, attention_dropout, norm_eps;
  bool scale_weights, scale_by_layer, tied;
};

/// What the blocks of one forward pass share.
struct Pass {
  layers::AttentionMask mask;
  layers::KeyValueCache* cache = nullptr;
  std::vector<Tensor>* attentions = nullptr;
};

class Attention : public torch::nn::Module {
 public:
  Attention(const GPT2Config& config, size_t layer)
      : layer_(layer),
        heads_(config.heads),
        attention_dropout_(config.attention_dropout),
        dropout_(config.residual_dropout) {
    c_attn_ =
        register_module("c_attn", std::make_shared<layers::Conv1D>(config.width, 3 * config.width));
    c_proj =
        register_module("c_proj", std::make_shared<layers::Conv1D>(config.width, config.width));
    scale_ = config.scale_weights
                 ? 1.0 / std::sqrt(static_cast<double>(config.width / config.heads))
                 : 1.0;
    if (config.scale_by_layer) scale_ /= static_cast<double>(layer + 1);
  }

  Tensor forward(const Tensor& x, const Pass& pass) const {
    const auto parts = kernels::split_heads(c_attn_->forward(x), heads_);
    const auto query = parts.query.transpose(1, 2);
    auto key = parts.key.transpose(1, 2), value = parts.value.transpose(1, 2);
    layers::AttentionOptions options;
    if (pass.cache != nullptr) {
      auto all = pass.cache->update(layer_, key, value);
      key = all.keys;
      value = all.values;
      options.key_rows = all.rows;
    }
    options.dropout = is_training() ? attention_dropout_ : 0.0;
    options.scale = scale_;
    Tensor weights;
    if (pass.attentions != nullptr) options.weights = &weights;
    const auto output = layers::attention(query, key, value, pass.mask, options);
    if (pass.attentions != nullptr) pass.attentions->push_back(weights);
    return layers::dropout(c_proj->forward(output), dropout_, is_training());
  }

  std::shared_ptr<layers::Conv1D> c_proj;

 private:
  std::shared_ptr<layers::Conv1D> c_attn_;
  size_t layer_;
  int64_t heads_;
  double scale_, attention_dropout_, dropout_;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const GPT2Config& config)
      : activation_(config.activation), dropout_(config.residual_dropout) {
    c_fc_ = register_module("c_fc", std::make_shared<layers::Conv1D>(config.width, config.inner));
    c_proj =
        register_module("c_proj", std::make_shared<layers::Conv1D>(config.inner, config.width));
  }
  Tensor forward(const Tensor& x) const {
    return layers::dropout(c_proj->forward(activation_(c_fc_->forward(x))), dropout_,
                           is_training());
  }

  std::shared_ptr<layers::Conv1D> c_proj;

 private:
  std::shared_ptr<layers::Conv1D> c_fc_;
  layers::Activation activation_;
  double dropout_;
};

class Block : public torch::nn::Module {
 public:
  Block(const GPT2Config& config, size_t layer) {
    const auto norm = torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps);
    ln_1_ = register_module("ln_1", torch::nn::LayerNorm(norm));
    attn_ = register_module("attn", std::make_shared<Attention>(config, layer));
    ln_2_ = register_module("ln_2", torch::nn::LayerNorm(norm));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(config));
  }
  void forward(layers::ResidualStream& stream, const Pass& pass) {
    stream.add(attn_->forward(stream.normed(*ln_1_), pass));
    stream.add(mlp_->forward(stream.normed(*ln_2_)));
  }
  Tensor forward(const Tensor& x, const Pass& pass) {
    layers::ResidualStream stream(x);
    forward(stream, pass);
    return stream.sum();
  }

 private:
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<Mlp> mlp_;
};

class GPT2 : public Backbone {
 public:
  explicit GPT2(const GPT2Config& config)
      : width_(config.width), dropout_(config.embedding_dropout) {
    attention_.heads = attention_.key_heads = config.heads;
    attention_.width = config.width / config.heads;
    attention_.dropout = config.attention_dropout;
    wte_ = register_module("wte",
                           std::make_shared<layers::Embedding>(config.vocabulary, config.width));
    wpe_ =
        register_module("wpe", std::make_shared<layers::Embedding>(config.positions, config.width,
                                                                   std::nullopt, "position_ids"));
    h_ = register_module("h", std::make_shared<layers::ModuleList<Block>>());
    for (int64_t i = 0; i < config.blocks; ++i)
      h_->push_back(std::make_shared<Block>(config, static_cast<size_t>(i)));
    ln_f_ = register_module(
        "ln_f",
        torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps)));
  }

  layers::Embedding& input_embeddings() override { return *wte_; }
  int64_t hidden_size() const override { return width_; }
  std::optional<AttentionShape> attention_shape() const override { return attention_; }
  std::optional<int64_t> position_limit() const override { return wpe_->weight.size(0); }
  bool decodes_in_place() const override { return true; }

  BackboneOutput forward(const BackboneInputs& inputs) override {
    const auto embedded = embed(inputs);
    const auto seen = inputs.cache != nullptr ? inputs.cache->length() : 0;
    const auto positions = inputs.position_ids.defined()
                               ? inputs.position_ids
                               : running_positions(seen, inputs.tokens(), embedded.device());
    auto x = embedded + wpe_->forward(positions);
    if (inputs.token_type_ids.defined()) x = x + wte_->forward(inputs.token_type_ids);
    x = layers::dropout(x, dropout_, is_training());

    layers::MaskRequest request;
    request.batch = inputs.rows();
    request.queries = inputs.tokens();
    request.keys = seen + inputs.tokens();
    request.device = x.device();
    if (!inputs.is_right_padded || seen > 0) request.attention_mask = inputs.attention_mask;
    request.sequence_ids = inputs.sequence_ids;
    BackboneOutput output;
    const Pass pass{layers::make_attention_mask(request), inputs.cache,
                    inputs.output_attentions ? &output.attentions : nullptr};
    layers::ResidualStream stream(x);
    for (size_t i = 0; const auto& block : *h_) {
      const bool recomputed = recomputes(i++, h_->size()) && pass.attentions == nullptr;
      if (inputs.output_hidden_states) output.hidden_states.push_back(stream.sum());
      if (recomputed)
        stream = layers::ResidualStream(
            layers::checkpoint([block, pass](const Tensor& y) { return block->forward(y, pass); },
                               stream.sum(), *gradient_checkpointing));
      else
        block->forward(stream, pass);
    }
    output.last_hidden_state = stream.normed(*ln_f_);
    if (inputs.output_hidden_states) output.hidden_states.push_back(output.last_hidden_state);
    return output;
  }

 private:
  int64_t width_;
  double dropout_;
  AttentionShape attention_;
  std::shared_ptr<layers::Embedding> wte_, wpe_;
  std::shared_ptr<layers::ModuleList<Block>> h_;
  torch::nn::LayerNorm ln_f_{nullptr};
};

/// The projections back to the residual stream start smaller, by the square root of their number.
bool init_gpt2(torch::nn::Module& module, const Initializer& initializer,
               const nlohmann::json& config) {
  const auto* attention = dynamic_cast<Attention*>(&module);
  const auto* mlp = dynamic_cast<Mlp*>(&module);
  if (attention == nullptr && mlp == nullptr) return false;
  const GPT2Config values(config);
  const auto deviation = ConfigReader(config).number("initializer_range", 0.02) /
                         std::sqrt(2.0 * static_cast<double>(values.blocks));
  initializer.normal((attention != nullptr ? attention->c_proj : mlp->c_proj)->weight, deviation);
  return true;
}

nlohmann::json with_defaults(nlohmann::json config) {
  for (const auto* name : {"bos_token_id", "eos_token_id"})
    if (!config.contains(name)) config[name] = 50256;
  return config;
}

const WeightTable& gpt2_table() {
  static const WeightTable table = {{},
                                    {"*attn.masked_bias", "*.attn.bias", "*.crossattention.bias"}};
  return table;
}

HeadOptions head_options(const std::string& class_name, const std::string& head = "score") {
  HeadOptions options;
  options.class_name = class_name;
  options.prefix = "transformer";
  options.head = head;
  options.span_loss_counts_items = false;
  options.input_names = {"input_ids", "attention_mask", "token_type_ids", "position_ids",
                         "inputs_embeds"};
  options.table = &gpt2_table();
  options.init = init_gpt2;
  return options;
}

/// classifier_dropout, else hidden_dropout, else 0.1.
double classifier_dropout(const nlohmann::json& config) {
  const ConfigReader read(config);
  if (const auto p = read.optional_number("classifier_dropout", 0.0, 1.0)) return *p;
  return read.probability("hidden_dropout", 0.1);
}

}  // namespace

std::vector<BuiltinModel> gpt2_models() {
  const auto body = [](const nlohmann::json& config) {
    return std::make_shared<GPT2>(GPT2Config(config));
  };
  return {
      {"gpt2", ModelTask::base,
       [=](const auto& config) {
         return std::make_shared<BaseModel>(with_defaults(config), head_options("GPT2Model"),
                                            body(config));
       }},
      {"gpt2", ModelTask::causal_lm,
       [=](const auto& config) {
         auto options = head_options("GPT2LMHeadModel");
         options.tied = GPT2Config(config).tied;
         options.counts_shifted_labels = false;
         return std::make_shared<CausalLM>(with_defaults(config), options, body(config),
                                           GPT2Config(config).vocabulary);
       }},
      {"gpt2", ModelTask::sequence_classification,
       [=](const auto& config) {
         return std::make_shared<CausalSequenceClassifier>(
             with_defaults(config), head_options("GPT2ForSequenceClassification"), body(config));
       }},
      {"gpt2", ModelTask::token_classification,
       [=](const auto& config) {
         return std::make_shared<TokenClassifier>(
             with_defaults(config), head_options("GPT2ForTokenClassification", "classifier"),
             body(config), classifier_dropout(config));
       }},
      {"gpt2", ModelTask::question_answering,
       [=](const auto& config) {
         return std::make_shared<SpanClassifier>(
             with_defaults(config), head_options("GPT2ForQuestionAnswering"), body(config));
       }},
  };
}

}  // namespace gradus
