#include "models/bigbird/bigbird.h"

#include <gradus/core/log.h>
#include <gradus/models/encoder_heads.h>
#include <gradus/models/layers/add_layer_norm.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/losses.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/bert/bert_config.h"
#include "models/bert/encoder_body.h"
#include "models/bigbird/bigbird_config.h"
#include "models/bigbird/block_sparse_attention.h"

namespace gradus {

using torch::Tensor;

namespace {

std::shared_ptr<torch::nn::LayerNormImpl> norm_of(const BigBirdConfig& config) {
  return std::make_shared<torch::nn::LayerNormImpl>(
      torch::nn::LayerNormOptions({config.width}).eps(config.norm_eps));
}

/// Words, positions and token types. Unlike BERT's, dropout comes before the norm.
class BigBirdEmbeddings : public torch::nn::Module {
 public:
  explicit BigBirdEmbeddings(const BigBirdConfig& config)
      : scale_(config.rescales_embeddings ? std::sqrt(double(config.width)) : 1.0),
        dropout_(config.hidden_dropout) {
    const auto table = [&](const char* name, int64_t rows, const char* what,
                           std::optional<int64_t> padding = std::nullopt) {
      return register_module(
          name, std::make_shared<layers::Embedding>(rows, config.width, padding, what));
    };
    words = table("word_embeddings", config.vocabulary, "input_ids",
                  config.trains_padding ? std::nullopt : config.padding_index);
    positions_ = table("position_embeddings", config.positions, "position_ids");
    types_ = table("token_type_embeddings", config.types, "token_type_ids");
    norm_ = register_module("LayerNorm", norm_of(config));
  }

  Tensor forward(const Tensor& embedded, const BackboneInputs& inputs) const {
    const auto typed = (scale_ == 1.0 ? embedded : embedded * scale_) +
                       (inputs.token_type_ids.defined() ? types_->forward(inputs.token_type_ids)
                                                        : types_->first(1));
    const auto placed =
        typed + (inputs.position_ids.defined() ? positions_->forward(inputs.position_ids)
                                               : positions_->first(inputs.tokens()));
    return norm_->forward(layers::dropout(placed, dropout_, is_training()));
  }

  std::shared_ptr<layers::Embedding> words;

 private:
  double scale_, dropout_;
  std::shared_ptr<layers::Embedding> positions_, types_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
};

/// A body whose attention is sparse for long texts. As in transformers, the first short text makes
/// it full for good.
class BigBirdBody : public EncoderBody {
 public:
  enum class Pooler { no, yes };

  BigBirdBody(const BigBirdConfig& config, Pooler pooler)
      : config_(config), is_sparse_(config.is_sparse) {
    embeddings_ = register_module("embeddings", std::make_shared<BigBirdEmbeddings>(config));
    const EncoderBlockOptions block{config.width,
                                    config.heads,
                                    config.inner,
                                    config.activation,
                                    config.attention_dropout,
                                    config.hidden_dropout,
                                    config.hidden_dropout,
                                    config.norm_eps,
                                    config.attention_bias};
    add_blocks("encoder.layer", config.blocks, block, kBertBlock);
    if (pooler == Pooler::yes)
      pooler_ =
          register_module("pooler", std::make_shared<layers::Linear>(config.width, config.width));
  }

  layers::Embedding& input_embeddings() override { return *embeddings_->words; }
  std::optional<int64_t> position_limit() const override { return config_.positions; }
  /// Sparse attention is of a kind that is not measured.
  std::optional<AttentionShape> attention_shape() const override {
    return is_sparse_ ? std::nullopt : EncoderBody::attention_shape();
  }

  nlohmann::json memory() const override {
    return config_.is_sparse && !is_sparse_ ? nlohmann::json{{"attention_type", "original_full"}}
                                            : nlohmann::json(nullptr);
  }
  void load_memory(const nlohmann::json& memory) override {
    if (memory.value("attention_type", "") == "original_full") is_sparse_ = false;
  }

  BackboneOutput forward(const BackboneInputs& inputs) override {
    choose_attention(inputs.tokens());
    auto output = is_sparse_ ? forward_sparse(inputs) : forward_full(inputs);
    if (pooler_ != nullptr)
      output.pooler_output = at::tanh(pooler_->forward(output.last_hidden_state.select(1, 0)));
    return output;
  }

 private:
  void choose_attention(int64_t tokens) {
    const auto longest = bigbird::longest_full_attention(config_.block_size, config_.random_blocks);
    if (!is_sparse_ || tokens > longest) return;
    is_sparse_ = false;
    draw_as_new_attention();
    log_warning(fmt::format(
        "A text of {} tokens is too short for block-sparse attention, which needs more than {}. "
        "From now on attention is full.",
        tokens, longest));
  }

  /// transformers makes new attention modules for full attention and gives them the weights of the
  /// old ones. Their own first values are never used, but drawn: the dropout that follows depends
  /// on it.
  void draw_as_new_attention() const {
    const torch::NoGradGuard no_grad;
    auto weight = at::empty({config_.width, config_.width}, at::kFloat),
         bias = at::empty({config_.width}, at::kFloat);
    for (int64_t linear = 0; linear < 3 * config_.blocks; ++linear) {
      weight.uniform_(-1.0, 1.0);
      if (config_.attention_bias) bias.uniform_(-1.0, 1.0);
    }
  }

  BackboneOutput forward_full(const BackboneInputs& inputs) {
    return encode(embeddings_->forward(embed(inputs), inputs), inputs,
                  config_.is_decoder ? Sees::earlier_tokens : Sees::all_tokens);
  }

  /// Pads the texts to whole blocks, and cuts that off again.
  BackboneOutput forward_sparse(const BackboneInputs& given) {
    const auto tokens = given.tokens(), size = config_.block_size;
    const auto missing = (size - tokens % size) % size;
    const auto inputs = missing == 0 ? given : padded(given, missing);
    const auto x = embeddings_->forward(embed(inputs), inputs);
    const bigbird::BlockShape shape{.tokens = tokens + missing,
                                    .positions = config_.positions,
                                    .block_size = size,
                                    .heads = config_.heads,
                                    .random_blocks = config_.random_blocks};
    const auto mask = inputs.attention_mask.defined()
                          ? inputs.attention_mask.to(x.device(), torch::kBool)
                          : Tensor();
    const bool at_random = is_training();
    auto output = encode(
        x, inputs,
        [=](size_t layer, const Tensor& query, const Tensor& key, const Tensor& value,
            Tensor* weights) {
          const auto chosen = at_random ? bigbird::random_blocks(shape, int64_t(layer))
                                        : bigbird::first_blocks(shape);
          return bigbird::block_sparse_attention(query, key, value, chosen, mask, shape, weights);
        });
    output.last_hidden_state = output.last_hidden_state.narrow(1, 0, tokens);
    return output;
  }

  BackboneInputs padded(BackboneInputs inputs, int64_t missing) const {
    const auto pad = [&](Tensor& tensor, int64_t value) {
      if (tensor.defined()) tensor = at::constant_pad_nd(tensor, {0, missing}, value);
    };
    const auto any = inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds;
    if (!inputs.attention_mask.defined())
      inputs.attention_mask =
          at::ones({any.size(0), any.size(1)}, any.options().dtype(torch::kLong));
    pad(inputs.attention_mask, 0);
    pad(inputs.input_ids, config_.padding_index.value_or(0));
    pad(inputs.position_ids, config_.padding_index.value_or(0));
    pad(inputs.token_type_ids, 0);
    if (inputs.inputs_embeds.defined())
      inputs.inputs_embeds = at::constant_pad_nd(inputs.inputs_embeds, {0, 0, 0, missing}, 0);
    return inputs;
  }

  BigBirdConfig config_;
  bool is_sparse_;
  std::shared_ptr<BigBirdEmbeddings> embeddings_;
  std::shared_ptr<layers::Linear> pooler_;
};

/// Predicts the next token with the head of the masked language model.
class BigBirdCausalLM : public MaskedLM {
 public:
  using MaskedLM::MaskedLM;
  bool shifts_labels() const override { return true; }

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto body = body_->forward(body_inputs(inputs, options));
    const auto hidden = transformed(body.last_hidden_state);
    const auto* labels = inputs.find("labels");
    const auto logits =
        options.need_logits || labels == nullptr ? decoder().forward(hidden) : Tensor();
    ModelOutput output;
    if (labels != nullptr)
      output.set("loss", lm_head_loss(decoder(), hidden, logits, shifted_labels(*labels),
                                      options.num_items_in_batch));
    if (logits.defined()) output.set("logits", logits);
    return with_extras(std::move(output), body);
  }
};

/// Finds the start and end of an answer behind the question. Another MLP stands before the scores,
/// and the tokens of the question but the first get none.
class BigBirdSpanClassifier : public BackboneModel {
 public:
  BigBirdSpanClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                        const BigBirdConfig& values)
      : BackboneModel(std::move(config), std::move(options), std::move(body)), values_(values) {
    const auto add = [&](const char* name, auto module) {
      return layers::register_at(*this, std::string("qa_classifier.") + name, std::move(module));
    };
    const auto linear = [](int64_t in, int64_t out) {
      return std::make_shared<layers::Linear>(in, out);
    };
    inner_ = add("intermediate.dense", linear(values.width, values.inner));
    output_ = add("output.dense", linear(values.inner, values.width));
    norm_ = add("output.LayerNorm", norm_of(values));
    scores_ = add("qa_outputs", linear(values.width, 2));
  }

  std::vector<std::string> label_names() const override {
    return {"start_positions", "end_positions"};
  }

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto found = found_scores(inputs, options);
    ModelOutput output;
    const auto *starts = inputs.find("start_positions"), *ends = inputs.find("end_positions");
    if (starts != nullptr && ends != nullptr)
      output.set("loss", span_loss(found.start, found.end, *starts, *ends));
    output.set("start_logits", found.start);
    output.set("end_logits", found.end);
    return with_extras(std::move(output), found.body);
  }

 protected:
  /// What a forward pass gives before labels are looked at.
  struct Found {
    Tensor start, end;  ///< (batch, tokens)
    BackboneOutput body;
  };

  Found found_scores(const Batch& inputs, const ForwardOptions& options) {
    auto given = body_inputs(inputs, options);
    const auto question = question_mask(inputs, given);
    if (question.defined() && !given.token_type_ids.defined())
      given.token_type_ids = question.logical_not().to(torch::kLong);
    Found found;
    found.body = body_->forward(given);
    auto logits = scores(found.body.last_hidden_state);
    if (question.defined()) {
      const auto left_out = question.clone();
      left_out.select(1, 0).fill_(false);  // the first token stands for "no answer"
      logits = logits - left_out.unsqueeze(2).to(logits.scalar_type()) * 1e6;
    }
    found.start = logits.select(-1, 0).contiguous();
    found.end = logits.select(-1, 1).contiguous();
    return found;
  }

 private:
  /// (batch, tokens): true up to the first separator; undefined when nobody knows where it is.
  Tensor question_mask(const Batch& inputs, const BackboneInputs& given) const {
    const auto* lengths = inputs.find("question_lengths");
    if (lengths == nullptr && !given.input_ids.defined()) return {};
    const auto ends =
        lengths != nullptr
            ? lengths->reshape({-1, 1})
            : given.input_ids.eq(values_.separator).to(torch::kInt).argmax(-1, /*keepdim=*/true) +
                  1;
    return at::arange(given.tokens(), ends.options()).unsqueeze(0) < ends;
  }

  Tensor scores(const Tensor& hidden) const {
    const auto drop = [&](const Tensor& x) {
      return layers::dropout(x, values_.hidden_dropout, is_training());
    };
    const auto inner = values_.activation(inner_->forward(drop(hidden)));
    return scores_->forward(layers::add_layer_norm(drop(output_->forward(inner)), hidden, *norm_));
  }

  BigBirdConfig values_;
  std::shared_ptr<layers::Linear> inner_, output_, scores_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
};

/// The same with five scores for the kind of answer (null, short, long, yes, no) from the pooled
/// first token: `pooled_logits`. No class of transformers, but the model of its Flax example on
/// natural questions; config.json says so in `architectures`.
///
/// Labels are `start_labels`, `end_labels` and `pooled_labels`. The loss is the mean of the three
/// cross entropies, each a mean over all rows; a label outside the scores (-100) adds nothing.
class BigBirdNaturalQuestions : public BigBirdSpanClassifier {
 public:
  BigBirdNaturalQuestions(nlohmann::json config, HeadOptions options,
                          std::shared_ptr<Backbone> body, const BigBirdConfig& values)
      : BigBirdSpanClassifier(std::move(config), std::move(options), std::move(body), values) {
    constexpr int64_t kAnswerKinds = 5;
    kind_ = register_module("cls", std::make_shared<layers::Linear>(values.width, kAnswerKinds));
  }

  std::vector<std::string> label_names() const override {
    return {"start_labels", "end_labels", "pooled_labels"};
  }

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto found = found_scores(inputs, options);
    const auto kinds = kind_->forward(found.body.pooler_output);
    ModelOutput output;
    const auto *starts = inputs.find("start_labels"), *ends = inputs.find("end_labels"),
               *pooled = inputs.find("pooled_labels");
    if (starts != nullptr && ends != nullptr && pooled != nullptr)
      output.set("loss",
                 (mean_over_all_rows(found.start, *starts) + mean_over_all_rows(found.end, *ends) +
                  mean_over_all_rows(kinds, *pooled)) /
                     3);
    output.set("start_logits", found.start);
    output.set("end_logits", found.end);
    output.set("pooled_logits", kinds);
    return with_extras(std::move(output), found.body);
  }

 private:
  static Tensor mean_over_all_rows(const Tensor& logits, const Tensor& given) {
    const auto labels = given.reshape({-1, 1}).to(torch::kLong);
    const auto counts = labels.ge(0).logical_and(labels.lt(logits.size(1)));
    return -at::log_softmax(logits, 1, torch::kFloat)
                .gather(1, labels.clamp(0, logits.size(1) - 1))
                .masked_fill(counts.logical_not(), 0)
                .mean();
  }

  std::shared_ptr<layers::Linear> kind_;
};

/// Whether config.json names the class for natural questions.
bool is_for_natural_questions(const nlohmann::json& config) {
  const auto names = config.find("architectures");
  return names != config.end() && names->is_array() && !names->empty() &&
         names->front() == "BigBirdForNaturalQuestions";
}

HeadOptions bigbird_head_options(const char* class_name) {
  HeadOptions options;
  options.class_name = class_name;
  options.prefix = "bert";
  options.head = "classifier";
  options.packs_by_position_ids = options.span_loss_counts_items = false;
  options.is_recordable = false;  // random blocks are drawn on the host
  options.input_names = {"input_ids", "attention_mask", "token_type_ids", "position_ids",
                         "inputs_embeds"};
  options.table = &bert_weight_table();
  return options;
}

MaskedLMOptions bigbird_lm_head(const BigBirdConfig& config) {
  MaskedLMOptions head = {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                          "cls.predictions.decoder", "cls.predictions.bias", config.activation};
  head.norm_eps = config.norm_eps;
  head.vocabulary = config.vocabulary;
  return head;
}

}  // namespace

std::vector<BuiltinModel> bigbird_models() {
  std::vector<BuiltinModel> models;
  const auto add = [&](ModelTask task, const char* class_name, auto make) {
    models.push_back(
        {"big_bird", task, [=](const nlohmann::json& config) -> std::shared_ptr<PreTrainedModel> {
           return make(config, bigbird_head_options(class_name), BigBirdConfig(config));
         }});
  };
  const auto body = [](const BigBirdConfig& values) {
    return std::make_shared<BigBirdBody>(values, BigBirdBody::Pooler::yes);
  };
  const auto takes = [](HeadOptions& options, std::initializer_list<const char*> names) {
    options.input_names.insert(options.input_names.end(), names.begin(), names.end());
  };
  add(ModelTask::base, "BigBirdModel", [=](const auto& config, auto options, const auto& values) {
    takes(options,
          {"encoder_hidden_states", "encoder_attention_mask", "past_key_values", "use_cache"});
    return std::make_shared<BaseModel>(config, options, body(values));
  });
  add(ModelTask::masked_lm, "BigBirdForMaskedLM",
      [=](const auto& config, auto options, const auto& values) {
        takes(options, {"encoder_hidden_states", "encoder_attention_mask"});
        options.tied = values.tied;
        return std::make_shared<MaskedLM>(config, options, body(values), bigbird_lm_head(values));
      });
  add(ModelTask::causal_lm, "BigBirdForCausalLM",
      [=](const auto& config, auto options, const auto& values) {
        takes(options,
              {"encoder_hidden_states", "encoder_attention_mask", "past_key_values", "use_cache"});
        options.tied = values.tied;
        return std::make_shared<BigBirdCausalLM>(config, options, body(values),
                                                 bigbird_lm_head(values));
      });
  add(ModelTask::sequence_classification, "BigBirdForSequenceClassification",
      [=](const auto& config, auto options, const auto& values) {
        SequenceHeadOptions head;
        head.dropout = head.input_dropout = values.classifier_dropout;
        head.dense = "classifier.dense";
        head.scores = "classifier.out_proj";
        head.activation = values.activation;
        return std::make_shared<SequenceClassifier>(config, options, body(values), head);
      });
  add(ModelTask::token_classification, "BigBirdForTokenClassification",
      [=](const auto& config, auto options, const auto& values) {
        return std::make_shared<TokenClassifier>(config, options, body(values),
                                                 values.classifier_dropout);
      });
  add(ModelTask::question_answering, "BigBirdForQuestionAnswering",
      [=](auto config, auto options, const auto& values) -> std::shared_ptr<BigBirdSpanClassifier> {
        check_span_labels(config);
        options.input_names.insert(options.input_names.begin() + 2, "question_lengths");
        if (is_for_natural_questions(config)) {
          options.class_name = "BigBirdForNaturalQuestions";
          auto as_in_flax = values;
          as_in_flax.trains_padding = true;
          return std::make_shared<BigBirdNaturalQuestions>(config, options, body(as_in_flax),
                                                           values);
        }
        return std::make_shared<BigBirdSpanClassifier>(
            config, options, std::make_shared<BigBirdBody>(values, BigBirdBody::Pooler::no),
            values);
      });
  return models;
}

}  // namespace gradus
