#include "models/llama/llama.h"

#include <gradus/kernels/fused.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/heads.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/layers/residual_stream.h>
#include <gradus/models/layers/rotary.h>

#include <algorithm>
#include <map>

#include "models/llama/llama_config.h"

namespace gradus {

using torch::Tensor;

namespace {

/// What the blocks of one forward pass share.
struct LlamaPass {
  layers::RotaryEmbedding::Angles angles;
  layers::KeyValueCache* cache = nullptr;
  std::vector<Tensor>* attentions = nullptr;
};

class LlamaAttention : public torch::nn::Module {
 public:
  LlamaAttention(const LlamaConfig& config, size_t layer)
      : layer_(layer), head_width_(config.head_width), dropout_(config.attention_dropout) {
    const auto narrow = config.key_value_heads * config.head_width;
    q_proj_ = register_module(
        "q_proj", std::make_shared<layers::Linear>(config.width, config.heads * config.head_width,
                                                   config.query_bias));
    k_proj_ = register_module(
        "k_proj", std::make_shared<layers::Linear>(config.width, narrow, config.query_bias));
    v_proj_ = register_module(
        "v_proj", std::make_shared<layers::Linear>(config.width, narrow, config.query_bias));
    o_proj_ = register_module(
        "o_proj", std::make_shared<layers::Linear>(config.heads * config.head_width, config.width,
                                                   config.output_bias));
    if (!config.normed_heads) return;
    q_norm_ = register_module(
        "q_norm", std::make_shared<layers::RMSNorm>(config.head_width, config.norm_eps));
    k_norm_ = register_module(
        "k_norm", std::make_shared<layers::RMSNorm>(config.head_width, config.norm_eps));
  }

  Tensor forward(layers::ResidualStream& stream, const layers::RMSNorm& norm,
                 const layers::AttentionMask& mask, const LlamaPass& pass) const {
    const auto parts = stream.projected(norm, {q_proj_, k_proj_, v_proj_});
    const auto turned = layers::apply_rotary(normed(parts[0], q_norm_.get()),
                                             normed(parts[1], k_norm_.get()), pass.angles);
    const auto query = turned.query.transpose(1, 2);
    auto key = turned.key.transpose(1, 2), value = by_heads(parts[2]).transpose(1, 2);
    layers::AttentionOptions options;
    if (pass.cache != nullptr) {
      auto all = pass.cache->update(layer_, key, value);
      key = all.keys;
      value = all.values;
      options.key_rows = all.rows;
    }
    options.dropout = is_training() ? dropout_ : 0.0;
    Tensor weights;
    if (pass.attentions != nullptr) options.weights = &weights;
    const auto output = layers::attention(query, key, value, mask, options);
    if (pass.attentions != nullptr) pass.attentions->push_back(weights);
    return o_proj_->forward(output);
  }

 private:
  Tensor by_heads(const Tensor& x) const { return x.view({x.size(0), x.size(1), -1, head_width_}); }
  Tensor normed(const Tensor& projected, const layers::RMSNorm* norm) const {
    const auto heads = by_heads(projected);
    return norm != nullptr ? norm->forward(heads) : heads;
  }

  std::shared_ptr<layers::Linear> q_proj_, k_proj_, v_proj_, o_proj_;
  std::shared_ptr<layers::RMSNorm> q_norm_, k_norm_;
  size_t layer_;
  int64_t head_width_;
  double dropout_;
};

class LlamaMlp : public torch::nn::Module {
 public:
  explicit LlamaMlp(const LlamaConfig& config)
      : swiglu_(config.activation == "silu" || config.activation == "swish"),
        activation_(layers::activation_named(config.activation)) {
    gate_proj_ = register_module(
        "gate_proj", std::make_shared<layers::Linear>(config.width, config.inner, config.mlp_bias));
    up_proj_ = register_module(
        "up_proj", std::make_shared<layers::Linear>(config.width, config.inner, config.mlp_bias));
    down_proj_ = register_module(
        "down_proj", std::make_shared<layers::Linear>(config.inner, config.width, config.mlp_bias));
  }
  Tensor forward(layers::ResidualStream& stream, const layers::RMSNorm& norm) const {
    const auto parts = stream.projected(norm, {gate_proj_, up_proj_});
    const auto &gate = parts[0], &up = parts[1];
    if (swiglu_ && down_proj_->adapter) {
      const auto low = down_proj_->adapter->low_rank();
      return low && low->a.defined() &&
                     kernels::lora_linear_applies(gate, down_proj_->weight, down_proj_->bias, *low)
                 ? kernels::swiglu_linear(gate, up, down_proj_->weight, down_proj_->bias, *low)
                 : down_proj_->forward(kernels::swiglu(gate, up));
    }
    if (swiglu_) return kernels::swiglu_linear(gate, up, down_proj_->weight, down_proj_->bias);
    return down_proj_->forward(activation_(gate) * up);
  }

 private:
  std::shared_ptr<layers::Linear> gate_proj_, up_proj_, down_proj_;
  bool swiglu_;
  layers::Activation activation_;
};

class LlamaBlock : public torch::nn::Module {
 public:
  LlamaBlock(const LlamaConfig& config, size_t layer) : window(config.windows[layer]) {
    self_attn_ = register_module("self_attn", std::make_shared<LlamaAttention>(config, layer));
    mlp_ = register_module("mlp", std::make_shared<LlamaMlp>(config));
    input_layernorm_ = register_module(
        "input_layernorm", std::make_shared<layers::RMSNorm>(config.width, config.norm_eps));
    post_attention_layernorm_ =
        register_module("post_attention_layernorm",
                        std::make_shared<layers::RMSNorm>(config.width, config.norm_eps));
  }
  void forward(layers::ResidualStream& stream, const layers::AttentionMask& mask,
               const LlamaPass& pass) const {
    stream.add(self_attn_->forward(stream, *input_layernorm_, mask, pass));
    stream.add(mlp_->forward(stream, *post_attention_layernorm_));
  }
  Tensor forward(const Tensor& x, const layers::AttentionMask& mask, const LlamaPass& pass) const {
    layers::ResidualStream stream(x);
    forward(stream, mask, pass);
    return stream.sum();
  }

  const std::optional<int64_t> window;

 private:
  std::shared_ptr<LlamaAttention> self_attn_;
  std::shared_ptr<LlamaMlp> mlp_;
  std::shared_ptr<layers::RMSNorm> input_layernorm_, post_attention_layernorm_;
};

class Llama : public Backbone {
 public:
  explicit Llama(const nlohmann::json& values) : Llama(LlamaConfig(values), values) {}

  layers::Embedding& input_embeddings() override { return *embed_tokens_; }
  int64_t hidden_size() const override { return width_; }
  std::optional<AttentionShape> attention_shape() const override { return attention_; }
  /// A window moves with every token.
  bool decodes_in_place() const override {
    return std::ranges::none_of(*layers_,
                                [](const auto& layer) { return layer->window.has_value(); });
  }

  BackboneOutput forward(const BackboneInputs& inputs) override {
    const auto x = embed(inputs);
    const auto seen = inputs.cache != nullptr ? inputs.cache->length() : 0;
    const auto positions = inputs.position_ids.defined()
                               ? inputs.position_ids
                               : running_positions(seen, inputs.tokens(), x.device());
    BackboneOutput output;
    const auto length =
        inputs.position_ids.defined() ? std::nullopt : std::optional(seen + inputs.tokens());
    const LlamaPass pass{rotary_.angles(positions, x.scalar_type(), length), inputs.cache,
                         inputs.output_attentions ? &output.attentions : nullptr};
    std::map<std::optional<int64_t>, layers::AttentionMask> masks;
    layers::ResidualStream stream(x);
    for (size_t i = 0; const auto& layer : *layers_) {
      const bool recomputed = recomputes(i++, layers_->size()) && pass.attentions == nullptr;
      if (inputs.output_hidden_states) output.hidden_states.push_back(stream.sum());
      auto found = masks.find(layer->window);
      if (found == masks.end())
        found = masks.emplace(layer->window, mask_for(inputs, seen, layer->window, x)).first;
      const auto& mask = found->second;
      if (recomputed)
        stream = layers::ResidualStream(layers::checkpoint(
            [layer, mask, pass](const Tensor& y) { return layer->forward(y, mask, pass); },
            stream.sum(), *gradient_checkpointing));
      else
        layer->forward(stream, mask, pass);
    }
    output.last_hidden_state = stream.normed(*norm_);
    if (inputs.output_hidden_states) output.hidden_states.push_back(output.last_hidden_state);
    return output;
  }

 private:
  Llama(const LlamaConfig& config, const nlohmann::json& values)
      : width_(config.width), rotary_(values, config.head_width, config.positions) {
    attention_.heads = config.heads;
    attention_.key_heads = config.key_value_heads;
    attention_.width = config.head_width;
    attention_.dropout = config.attention_dropout;
    embed_tokens_ = register_module(
        "embed_tokens",
        std::make_shared<layers::Embedding>(config.vocabulary, config.width, config.padding_index));
    layers_ = register_module("layers", std::make_shared<layers::ModuleList<LlamaBlock>>());
    for (int64_t i = 0; i < config.blocks; ++i)
      layers_->push_back(std::make_shared<LlamaBlock>(config, static_cast<size_t>(i)));
    norm_ =
        register_module("norm", std::make_shared<layers::RMSNorm>(config.width, config.norm_eps));
  }

  layers::AttentionMask mask_for(const BackboneInputs& inputs, int64_t seen,
                                 std::optional<int64_t> window, const Tensor& x) const {
    layers::MaskRequest request;
    request.batch = inputs.rows();
    request.queries = inputs.tokens();
    request.keys = seen + inputs.tokens();
    request.device = x.device();
    if (!inputs.is_right_padded || seen > 0) request.attention_mask = inputs.attention_mask;
    request.sequence_ids = inputs.sequence_ids;
    const auto dropout = is_training() ? attention_.dropout : 0.0;
    if (!inputs.output_attentions && layers::attention_takes_starts(x, attention_.width, dropout))
      request.starts = inputs.sequence_starts;
    request.sliding_window = window;
    request.takes_window =
        !inputs.output_attentions && layers::attention_takes_window(x, attention_.width, dropout);
    return layers::make_attention_mask(request);
  }

  int64_t width_;
  AttentionShape attention_;
  layers::RotaryEmbedding rotary_;
  std::shared_ptr<layers::Embedding> embed_tokens_;
  std::shared_ptr<layers::ModuleList<LlamaBlock>> layers_;
  std::shared_ptr<layers::RMSNorm> norm_;
};

struct Member {
  const char* model_type;
  const char* name;         ///< beginning of transformers' class names
  const char* span_prefix;  ///< name of the body in the question answering head
  bool has_default_tokens;  ///< bos 1 and eos 2 when config.json says nothing
};

constexpr Member kMembers[] = {
    {"llama", "Llama", "transformer", true},
    {"mistral", "Mistral", "model", true},
    {"qwen2", "Qwen2", "transformer", false},
    {"qwen3", "Qwen3", "transformer", false},
};

HeadOptions head_options(const Member& member, const std::string& suffix,
                         const std::string& prefix = "model") {
  static const WeightTable table = {{}, {"*rotary_emb.inv_freq"}};
  HeadOptions options;
  options.class_name = member.name + suffix;
  options.prefix = prefix;
  options.table = &table;
  return options;
}

nlohmann::json with_defaults(nlohmann::json config, const Member& member) {
  if (!member.has_default_tokens) return config;
  if (!config.contains("bos_token_id")) config["bos_token_id"] = 1;
  if (!config.contains("eos_token_id")) config["eos_token_id"] = 2;
  return config;
}

double llama_classifier_dropout(const nlohmann::json& config) {
  const ConfigReader read(config);
  if (const auto p = read.optional_number("classifier_dropout", 0.0, 1.0)) return *p;
  return read.probability("hidden_dropout", 0.1);
}

void append_member(std::vector<BuiltinModel>& models, const Member& member) {
  const auto body = [](const nlohmann::json& config) { return std::make_shared<Llama>(config); };
  models.push_back({member.model_type, ModelTask::base, [=](const auto& config) {
                      return std::make_shared<BaseModel>(with_defaults(config, member),
                                                         head_options(member, "Model"),
                                                         body(config));
                    }});
  models.push_back({member.model_type, ModelTask::causal_lm, [=](const auto& config) {
                      auto options = head_options(member, "ForCausalLM");
                      const LlamaConfig values(config);
                      options.tied = values.tied;
                      return std::make_shared<CausalLM>(with_defaults(config, member), options,
                                                        body(config), values.vocabulary);
                    }});
  models.push_back({member.model_type, ModelTask::sequence_classification, [=](const auto& config) {
                      return std::make_shared<CausalSequenceClassifier>(
                          with_defaults(config, member),
                          head_options(member, "ForSequenceClassification"), body(config));
                    }});
  models.push_back({member.model_type, ModelTask::token_classification, [=](const auto& config) {
                      return std::make_shared<TokenClassifier>(
                          with_defaults(config, member),
                          head_options(member, "ForTokenClassification"), body(config),
                          llama_classifier_dropout(config));
                    }});
  models.push_back({member.model_type, ModelTask::question_answering, [=](const auto& config) {
                      return std::make_shared<SpanClassifier>(
                          with_defaults(config, member),
                          head_options(member, "ForQuestionAnswering", member.span_prefix),
                          body(config));
                    }});
}

}  // namespace

std::vector<BuiltinModel> llama_models() {
  std::vector<BuiltinModel> models;
  for (const auto& member : kMembers) append_member(models, member);
  return models;
}

}  // namespace gradus
