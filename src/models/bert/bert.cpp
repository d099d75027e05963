#include "models/bert/bert.h"

#include <gradus/models/encoder_heads.h>
#include <gradus/models/layers/add_layer_norm.h>
#include <gradus/models/layers/module_list.h>
#include <gradus/models/layers/module_path.h>

#include <ATen/ops/tanh.h>

#include "models/bert/bert_config.h"

namespace gradus {

using torch::Tensor;

namespace {

std::shared_ptr<layers::Linear> add_linear(torch::nn::Module& root, const char* path, int64_t in, int64_t out) {
  return layers::register_at(root, path, std::make_shared<layers::Linear>(in, out));
}

std::shared_ptr<torch::nn::LayerNormImpl> add_norm(torch::nn::Module& root, const char* path, const BertConfig& config) {
  return layers::register_at(root, path, std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps)));
}

/// What the blocks of one forward pass share.
struct BertPass {
  layers::AttentionMask mask;
  bool first_only = false;  ///< the last block: only the first token is asked for
  std::vector<Tensor>* attentions = nullptr;

  BertPass of_first_token() const { return {{mask.mask.defined() ? mask.mask.narrow(2, 0, 1) : Tensor(), false}, true, attentions}; }
};

class BertLayer : public torch::nn::Module {
 public:
  explicit BertLayer(const BertConfig& config)
      : head_width_(config.width / config.heads), hidden_dropout_(config.hidden_dropout), attention_dropout_(config.attention_dropout), activation_(config.activation) {
    query_ = add_linear(*this, "attention.self.query", config.width, config.width);
    key_ = add_linear(*this, "attention.self.key", config.width, config.width);
    value_ = add_linear(*this, "attention.self.value", config.width, config.width);
    attended_ = add_linear(*this, "attention.output.dense", config.width, config.width);
    attention_norm_ = add_norm(*this, "attention.output.LayerNorm", config);
    intermediate_ = add_linear(*this, "intermediate.dense", config.width, config.inner);
    output_ = add_linear(*this, "output.dense", config.inner, config.width);
    output_norm_ = add_norm(*this, "output.LayerNorm", config);
  }

  Tensor forward(const Tensor& x, const BertPass& pass) const {
    const auto queries = pass.first_only ? x.narrow(1, 0, 1).contiguous() : x;
    const auto attended = layers::add_layer_norm(dropped(attended_->forward(attention(queries, x, pass))), queries, *attention_norm_);
    const auto output = output_->forward(activation_(intermediate_->forward(attended)));
    return layers::add_layer_norm(dropped(output), attended, *output_norm_);
  }

 private:
  Tensor dropped(const Tensor& x) const { return layers::dropout(x, hidden_dropout_, is_training()); }
  Tensor by_heads(const Tensor& x) const { return x.view({x.size(0), x.size(1), -1, head_width_}).transpose(1, 2); }

  Tensor attention(const Tensor& queries, const Tensor& x, const BertPass& pass) const {
    layers::AttentionOptions options;
    options.dropout = is_training() ? attention_dropout_ : 0.0;
    Tensor weights;
    if (pass.attentions != nullptr) options.weights = &weights;
    const auto output = layers::attention(by_heads(query_->forward(queries)), by_heads(key_->forward(x)), by_heads(value_->forward(x)), pass.mask, options);
    if (pass.attentions != nullptr) pass.attentions->push_back(weights);
    return output;
  }

  int64_t head_width_;
  double hidden_dropout_, attention_dropout_;
  layers::Activation activation_;
  std::shared_ptr<layers::Linear> query_, key_, value_, attended_, intermediate_, output_;
  std::shared_ptr<torch::nn::LayerNormImpl> attention_norm_, output_norm_;
};

/// Words, positions and token types. RoBERTa counts positions from pad_token_id + 1 and leaves out padding.
class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const BertConfig& config) : is_roberta_(config.is_roberta), padding_(config.padding_index.value_or(0)), dropout_(config.hidden_dropout) {
    words = register_module("word_embeddings", std::make_shared<layers::Embedding>(config.vocabulary, config.width, config.padding_index));
    if (!is_roberta_) add_positions(config, std::nullopt);
    types_ = register_module("token_type_embeddings", std::make_shared<layers::Embedding>(config.types, config.width, std::nullopt, "token_type_ids"));
    norm_ = add_norm(*this, "LayerNorm", config);
    if (is_roberta_) add_positions(config, config.padding_index);
  }

  Tensor forward(const Tensor& embedded, const BackboneInputs& inputs) const {
    const auto typed = embedded + (inputs.token_type_ids.defined() ? types_->forward(inputs.token_type_ids) : types_->first(1));
    return layers::dropout(norm_->forward(typed + positions_of(inputs)), dropout_, is_training());
  }

  std::shared_ptr<layers::Embedding> words;

 private:
  void add_positions(const BertConfig& config, std::optional<int64_t> padding) {
    positions_ = register_module("position_embeddings", std::make_shared<layers::Embedding>(config.positions, config.width, padding, "position_ids"));
  }

  Tensor positions_of(const BackboneInputs& inputs) const {
    if (inputs.position_ids.defined()) return positions_->forward(inputs.position_ids);
    if (!is_roberta_) return positions_->first(inputs.tokens());
    if (!inputs.input_ids.defined()) return positions_->forward(running_positions(padding_ + 1, inputs.tokens(), inputs.inputs_embeds.device()));
    const auto text = inputs.input_ids.ne(padding_).to(torch::kLong);
    return positions_->forward(text.cumsum(1) * text + padding_);
  }

  bool is_roberta_;
  int64_t padding_;
  double dropout_;
  std::shared_ptr<layers::Embedding> positions_, types_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
};

class BertBody : public Backbone {
 public:
  enum class Pooler { no, yes };

  BertBody(const BertConfig& config, Pooler pooler) : width_(config.width) {
    embeddings_ = register_module("embeddings", std::make_shared<BertEmbeddings>(config));
    layers_ = layers::register_at(*this, "encoder.layer", std::make_shared<layers::ModuleList<BertLayer>>());
    for (int64_t i = 0; i < config.blocks; ++i) layers_->push_back(std::make_shared<BertLayer>(config));
    if (pooler == Pooler::yes) pooler_ = add_linear(*this, "pooler.dense", config.width, config.width);
  }

  layers::Embedding& input_embeddings() override { return *embeddings_->words; }
  int64_t hidden_size() const override { return width_; }

  BackboneOutput forward(const BackboneInputs& inputs) override {
    auto x = embeddings_->forward(embed(inputs), inputs);
    BackboneOutput output;
    BertPass pass{mask_for(inputs, x.device()), false, inputs.output_attentions ? &output.attentions : nullptr};
    for (const auto& layer : *layers_) {
      if (inputs.output_hidden_states) output.hidden_states.push_back(x);
      if (layer == layers_->last() && inputs.may_leave_out_tokens()) pass = pass.of_first_token();
      if (gradient_checkpointing && pass.attentions == nullptr)
        x = run_block([layer, pass](const Tensor& y) { return layer->forward(y, pass); }, x);
      else
        x = layer->forward(x, pass);
    }
    output.last_hidden_state = x;
    if (inputs.output_hidden_states) output.hidden_states.push_back(x);
    if (pooler_ != nullptr) output.pooler_output = at::tanh(pooler_->forward(x.select(1, 0)));
    return output;
  }

 private:
  static layers::AttentionMask mask_for(const BackboneInputs& inputs, torch::Device device) {
    layers::MaskRequest request;
    request.batch = inputs.rows();
    request.queries = request.keys = inputs.tokens();
    request.device = device;
    request.attention_mask = inputs.attention_mask;
    request.sequence_ids = inputs.sequence_ids;
    request.causal = false;
    return layers::make_attention_mask(request);
  }

  int64_t width_;
  std::shared_ptr<BertEmbeddings> embeddings_;
  std::shared_ptr<layers::ModuleList<BertLayer>> layers_;
  std::shared_ptr<layers::Linear> pooler_;
};

struct BertMember {
  const char* model_type;
  const char* name;  ///< beginning of transformers' class names
};

constexpr BertMember kBertMembers[] = {{"bert", "Bert"}, {"roberta", "Roberta"}};

/// Values that config.json leaves out and a tokenizer is compared with.
nlohmann::json bert_config_with_defaults(nlohmann::json config, bool is_roberta) {
  const auto set = [&](const char* name, int64_t value) {
    if (!config.contains(name)) config[name] = value;
  };
  set("pad_token_id", is_roberta ? 1 : 0);
  if (is_roberta) set("bos_token_id", 0);
  if (is_roberta) set("eos_token_id", 2);
  return config;
}

HeadOptions bert_head_options(const BertMember& member, const char* suffix) {
  HeadOptions options;
  options.class_name = std::string(member.name) + suffix;
  options.prefix = member.model_type;
  options.head = "classifier";
  options.packs_by_position_ids = options.span_loss_counts_items = false;
  options.input_names = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds"};
  options.table = &bert_weight_table();
  return options;
}

MaskedLMOptions bert_lm_head(const BertConfig& config) {
  MaskedLMOptions head;
  if (config.is_roberta)
    head = {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", layers::activation_named("gelu")};
  else
    head = {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder", "cls.predictions.bias", config.activation};
  head.norm_eps = config.norm_eps;
  head.vocabulary = config.vocabulary;
  return head;
}

SequenceHeadOptions bert_sequence_head(const BertConfig& config) {
  SequenceHeadOptions head;
  head.dropout = config.classifier_dropout;
  if (!config.is_roberta) return head;
  head.input_dropout = config.classifier_dropout;
  head.dense = "classifier.dense";
  head.scores = "classifier.out_proj";
  head.activation = at::tanh;
  return head;
}

void append_bert_member(std::vector<BuiltinModel>& models, const BertMember& member) {
  const auto add = [&](ModelTask task, const char* suffix, auto make) {
    models.push_back({member.model_type, task, [=](const nlohmann::json& given) -> std::shared_ptr<PreTrainedModel> {
                        const BertConfig values(given);
                        const auto config = bert_config_with_defaults(given, values.is_roberta);
                        return make(config, bert_head_options(member, suffix), values);
                      }});
  };
  const auto body = [](const BertConfig& values, BertBody::Pooler pooler = BertBody::Pooler::no) { return std::make_shared<BertBody>(values, pooler); };
  add(ModelTask::base, "Model", [=](const auto& config, auto options, const auto& values) {
    for (const auto* name : {"encoder_hidden_states", "encoder_attention_mask", "past_key_values", "use_cache"}) options.input_names.push_back(name);
    return std::make_shared<BaseModel>(config, options, body(values, BertBody::Pooler::yes));
  });
  add(ModelTask::masked_lm, "ForMaskedLM", [=](const auto& config, auto options, const auto& values) {
    for (const auto* name : {"encoder_hidden_states", "encoder_attention_mask"}) options.input_names.push_back(name);
    options.tied = values.tied;
    return std::make_shared<MaskedLM>(config, options, body(values), bert_lm_head(values));
  });
  add(ModelTask::sequence_classification, "ForSequenceClassification", [=](const auto& config, auto options, const auto& values) {
    const auto pooler = values.is_roberta ? BertBody::Pooler::no : BertBody::Pooler::yes;
    return std::make_shared<SequenceClassifier>(config, options, body(values, pooler), bert_sequence_head(values));
  });
  add(ModelTask::token_classification, "ForTokenClassification", [=](const auto& config, auto options, const auto& values) {
    return std::make_shared<TokenClassifier>(config, options, body(values), values.classifier_dropout);
  });
  add(ModelTask::question_answering, "ForQuestionAnswering", [=](const auto& config, auto options, const auto& values) {
    check_span_labels(config);
    return std::make_shared<SpanClassifier>(config, options, body(values));
  });
}

}  // namespace

std::vector<BuiltinModel> bert_models() {
  std::vector<BuiltinModel> models;
  for (const auto& member : kBertMembers) append_bert_member(models, member);
  return models;
}

}  // namespace gradus
