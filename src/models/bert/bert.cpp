#include "models/bert/bert.h"

#include <gradus/models/encoder_heads.h>
#include <gradus/models/layers/module_path.h>

#include <ATen/ops/tanh.h>

#include "models/bert/bert_config.h"
#include "models/bert/encoder_body.h"

namespace gradus {

using torch::Tensor;

namespace {

/// Words, positions and token types. RoBERTa counts positions from pad_token_id + 1 and leaves out
/// padding.
class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const BertConfig& config)
      : is_roberta_(config.is_roberta),
        padding_(config.padding_index.value_or(0)),
        dropout_(config.hidden_dropout) {
    words = register_module(
        "word_embeddings",
        std::make_shared<layers::Embedding>(config.vocabulary, config.width, config.padding_index));
    if (!is_roberta_) add_positions(config, std::nullopt);
    types_ = register_module("token_type_embeddings",
                             std::make_shared<layers::Embedding>(config.types, config.width,
                                                                 std::nullopt, "token_type_ids"));
    norm_ = register_module("LayerNorm",
                            std::make_shared<torch::nn::LayerNormImpl>(
                                torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps)));
    if (is_roberta_) add_positions(config, config.padding_index);
  }

  Tensor forward(const Tensor& embedded, const BackboneInputs& inputs) const {
    const auto typed =
        embedded + (inputs.token_type_ids.defined() ? types_->forward(inputs.token_type_ids)
                                                    : types_->first(1));
    return layers::dropout(norm_->forward(typed + positions_of(inputs)), dropout_, is_training());
  }

  std::shared_ptr<layers::Embedding> words;

 private:
  void add_positions(const BertConfig& config, std::optional<int64_t> padding) {
    positions_ = register_module("position_embeddings",
                                 std::make_shared<layers::Embedding>(config.positions, config.width,
                                                                     padding, "position_ids"));
  }

  Tensor positions_of(const BackboneInputs& inputs) const {
    if (inputs.position_ids.defined()) return positions_->forward(inputs.position_ids);
    if (!is_roberta_) return positions_->first(inputs.tokens());
    if (!inputs.input_ids.defined())
      return positions_->forward(
          running_positions(padding_ + 1, inputs.tokens(), inputs.inputs_embeds.device()));
    const auto text = inputs.input_ids.ne(padding_).to(torch::kLong);
    return positions_->forward(text.cumsum(1) * text + padding_);
  }

  bool is_roberta_;
  int64_t padding_;
  double dropout_;
  std::shared_ptr<layers::Embedding> positions_, types_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
};

class BertBody : public EncoderBody {
 public:
  enum class Pooler { no, yes };

  BertBody(const BertConfig& config, Pooler pooler) {
    embeddings_ = register_module("embeddings", std::make_shared<BertEmbeddings>(config));
    const EncoderBlockOptions block{config.width,
                                    config.heads,
                                    config.inner,
                                    config.activation,
                                    config.attention_dropout,
                                    config.hidden_dropout,
                                    config.hidden_dropout,
                                    config.norm_eps};
    add_blocks("encoder.layer", config.blocks, block, kBertBlock);
    if (pooler == Pooler::yes)
      pooler_ = layers::register_at(*this, "pooler.dense",
                                    std::make_shared<layers::Linear>(config.width, config.width));
  }

  layers::Embedding& input_embeddings() override { return *embeddings_->words; }

  BackboneOutput forward(const BackboneInputs& inputs) override {
    auto output = encode(embeddings_->forward(embed(inputs), inputs), inputs);
    if (pooler_ != nullptr)
      output.pooler_output = at::tanh(pooler_->forward(output.last_hidden_state.select(1, 0)));
    return output;
  }

 private:
  std::shared_ptr<BertEmbeddings> embeddings_;
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
  options.input_names = {"input_ids", "attention_mask", "token_type_ids", "position_ids",
                         "inputs_embeds"};
  options.table = &bert_weight_table();
  return options;
}

MaskedLMOptions bert_lm_head(const BertConfig& config) {
  MaskedLMOptions head;
  if (config.is_roberta)
    head = {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias",
            layers::activation_named("gelu")};
  else
    head = {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder", "cls.predictions.bias", config.activation};
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
    models.push_back({member.model_type, task,
                      [=](const nlohmann::json& given) -> std::shared_ptr<PreTrainedModel> {
                        const BertConfig values(given);
                        const auto config = bert_config_with_defaults(given, values.is_roberta);
                        return make(config, bert_head_options(member, suffix), values);
                      }});
  };
  const auto body = [](const BertConfig& values, BertBody::Pooler pooler = BertBody::Pooler::no) {
    return std::make_shared<BertBody>(values, pooler);
  };
  add(ModelTask::base, "Model", [=](const auto& config, auto options, const auto& values) {
    for (const auto* name :
         {"encoder_hidden_states", "encoder_attention_mask", "past_key_values", "use_cache"})
      options.input_names.push_back(name);
    return std::make_shared<BaseModel>(config, options, body(values, BertBody::Pooler::yes));
  });
  add(ModelTask::masked_lm, "ForMaskedLM",
      [=](const auto& config, auto options, const auto& values) {
        for (const auto* name : {"encoder_hidden_states", "encoder_attention_mask"})
          options.input_names.push_back(name);
        options.tied = values.tied;
        return std::make_shared<MaskedLM>(config, options, body(values), bert_lm_head(values));
      });
  add(ModelTask::sequence_classification, "ForSequenceClassification",
      [=](const auto& config, auto options, const auto& values) {
        const auto pooler = values.is_roberta ? BertBody::Pooler::no : BertBody::Pooler::yes;
        return std::make_shared<SequenceClassifier>(config, options, body(values, pooler),
                                                    bert_sequence_head(values));
      });
  add(ModelTask::token_classification, "ForTokenClassification",
      [=](const auto& config, auto options, const auto& values) {
        return std::make_shared<TokenClassifier>(config, options, body(values),
                                                 values.classifier_dropout);
      });
  add(ModelTask::question_answering, "ForQuestionAnswering",
      [=](const auto& config, auto options, const auto& values) {
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
