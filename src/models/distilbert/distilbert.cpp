#include "models/distilbert/distilbert.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/encoder_heads.h>
#include <gradus/models/layers/module_path.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>

#include "models/bert/bert_config.h"
#include "models/bert/encoder_body.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr double kDistilNormEps = 1e-12;  // not a setting of config.json

struct DistilBertConfig {
  explicit DistilBertConfig(const nlohmann::json& values) {
    const ConfigReader read(values, "config.json",
                            {{"dim", "hidden_size"},
                             {"n_heads", "num_attention_heads"},
                             {"n_layers", "num_hidden_layers"}});
    vocabulary = read.integer("vocab_size", 30522);
    positions = read.integer("max_position_embeddings", 512);
    width = read.integer("dim", 768);
    blocks = read.integer("n_layers", 6, 1, 10000);
    heads = read.integer("n_heads", 12);
    inner = read.integer("hidden_dim", 3072);
    activation = layers::activation_named(read.text("activation", "gelu"));
    dropout = read.probability("dropout", 0.1);
    attention_dropout = read.probability("attention_dropout", 0.1);
    span_dropout = read.probability("qa_dropout", 0.1);
    sequence_dropout = read.probability("seq_classif_dropout", 0.2);
    sinusoidal = read.flag("sinusoidal_pos_embds", false);
    tied = read.flag("tie_word_embeddings", true);
    padding_index = padding_row(values, vocabulary, 0);
    if (width % heads != 0)
      read.fail("dim", "a multiple of n_heads (" + std::to_string(heads) + ")",
                std::to_string(width));
  }

  int64_t vocabulary, positions, width, blocks, heads, inner;
  std::optional<int64_t> padding_index;
  layers::Activation activation;
  double dropout, attention_dropout, span_dropout, sequence_dropout;
  bool sinusoidal, tied;
};

constexpr EncoderBlockNames kDistilBlock = {
    "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
    "sa_layer_norm",   "ffn.lin1",        "ffn.lin2",        "output_layer_norm"};

/// A class of its own so that `sinusoidal_pos_embds` finds it at initialisation.
class DistilPositions : public layers::Embedding {
 public:
  explicit DistilPositions(const DistilBertConfig& config)
      : Embedding(config.positions, config.width, std::nullopt, "position_ids") {}
};

class DistilBody : public EncoderBody {
 public:
  explicit DistilBody(const DistilBertConfig& config) : dropout_(config.dropout) {
    words_ = layers::register_at(
        *this, "embeddings.word_embeddings",
        std::make_shared<layers::Embedding>(config.vocabulary, config.width, config.padding_index));
    positions_ = layers::register_at(*this, "embeddings.position_embeddings",
                                     std::make_shared<DistilPositions>(config));
    norm_ =
        layers::register_at(*this, "embeddings.LayerNorm",
                            std::make_shared<torch::nn::LayerNormImpl>(
                                torch::nn::LayerNormOptions({config.width}).eps(kDistilNormEps)));
    const EncoderBlockOptions block{
        config.width, config.heads,   config.inner,  config.activation, config.attention_dropout,
        0.0,          config.dropout, kDistilNormEps};
    add_blocks("transformer.layer", config.blocks, block, kDistilBlock);
  }

  layers::Embedding& input_embeddings() override { return *words_; }

  BackboneOutput forward(const BackboneInputs& inputs) override {
    const auto positions = inputs.position_ids.defined() ? positions_->forward(inputs.position_ids)
                                                         : positions_->first(inputs.tokens());
    return encode(
        layers::dropout(norm_->forward(embed(inputs) + positions), dropout_, is_training()),
        inputs);
  }

 private:
  double dropout_;
  std::shared_ptr<layers::Embedding> words_;
  std::shared_ptr<DistilPositions> positions_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
};

/// sin(p / 10000^(j/width)) in even columns j, the cosine of the column before in odd ones.
bool init_distilbert(torch::nn::Module& module, const Initializer& initializer,
                     const nlohmann::json& config) {
  const auto* positions = dynamic_cast<DistilPositions*>(&module);
  if (positions == nullptr || !initializer.wants(positions->weight) ||
      !DistilBertConfig(config).sinusoidal)
    return false;
  torch::NoGradGuard no_grad;
  auto table = positions->weight;
  const auto options = torch::TensorOptions().dtype(torch::kDouble).device(table.device());
  const auto even = at::arange(0, table.size(1), 2, options);
  const auto angles = at::arange(table.size(0), options).unsqueeze(1) /
                      at::pow(10000.0, even / static_cast<double>(table.size(1)));
  table.slice(1, 0, std::nullopt, 2).copy_(angles.sin());
  table.slice(1, 1, std::nullopt, 2).copy_(angles.cos().narrow(1, 0, table.size(1) / 2));
  return true;
}

HeadOptions distilbert_head_options(const char* suffix) {
  HeadOptions options;
  options.class_name = std::string("DistilBert") + suffix;
  options.prefix = "distilbert";
  options.head = "classifier";
  options.packs_by_position_ids = options.span_loss_counts_items = false;
  options.input_names = {"input_ids", "attention_mask", "inputs_embeds", "position_ids"};
  options.table = &bert_weight_table();
  options.init = init_distilbert;
  return options;
}

template <class F>
BuiltinModel distilbert_model(ModelTask task, const char* suffix, F make) {
  return {"distilbert", task, [=](const nlohmann::json& given) -> std::shared_ptr<PreTrainedModel> {
            const DistilBertConfig values(given);
            auto config = given;
            if (!config.contains("pad_token_id")) config["pad_token_id"] = 0;
            return make(config, distilbert_head_options(suffix), values,
                        std::make_shared<DistilBody>(values));
          }};
}

}  // namespace

std::vector<BuiltinModel> distilbert_models() {
  return {
      distilbert_model(ModelTask::base, "Model",
                       [](const auto& config, auto options, const auto&, auto body) {
                         return std::make_shared<BaseModel>(config, options, body);
                       }),
      distilbert_model(ModelTask::masked_lm, "ForMaskedLM",
                       [](const auto& config, auto options, const auto& values, auto body) {
                         options.tied = values.tied;
                         const MaskedLMOptions head{
                             "vocab_transform", "vocab_layer_norm", "vocab_projector", "",
                             values.activation, kDistilNormEps,     values.vocabulary};
                         return std::make_shared<MaskedLM>(config, options, body, head);
                       }),
      distilbert_model(ModelTask::sequence_classification, "ForSequenceClassification",
                       [](const auto& config, auto options, const auto& values, auto body) {
                         SequenceHeadOptions head;
                         head.dense = "pre_classifier";
                         head.activation = at::relu;
                         head.dropout = values.sequence_dropout;
                         return std::make_shared<SequenceClassifier>(config, options, body, head);
                       }),
      distilbert_model(ModelTask::token_classification, "ForTokenClassification",
                       [](const auto& config, auto options, const auto& values, auto body) {
                         return std::make_shared<TokenClassifier>(config, options, body,
                                                                  values.dropout);
                       }),
      distilbert_model(ModelTask::question_answering, "ForQuestionAnswering",
                       [](const auto& config, auto options, const auto& values, auto body) {
                         check_span_labels(config);
                         return std::make_shared<SpanClassifier>(config, options, body,
                                                                 values.span_dropout);
                       }),
  };
}

}  // namespace gradus
