#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/pretrained_model.h>

#include <memory>
#include <string>

namespace gradus {

/// What a head needs to know about its architecture.
struct HeadOptions {
  std::string class_name;  ///< The class in transformers: "GPT2ForSequenceClassification".
  std::string prefix;      ///< Name of the body's module: "transformer".
  std::string body;        ///< The body's dotted path where it is not `prefix`: "model.decoder".
  std::string head = "score";         ///< Name of the head's module.
  bool tied = false;                  ///< Language models: the head shares the token embeddings.
  bool shifts_labels = true;          ///< See `Model::shifts_labels`; BART's decoder does not.
  bool counts_shifted_labels = true;  ///< See `Model::counts_shifted_labels`.
  bool is_recordable = true;          ///< See `Model::is_recordable`.
  /// Whether position_ids that restart separate packed sequences. Otherwise only seq_idx and
  /// cu_seq_lens_q do.
  bool packs_by_position_ids = true;
  /// Question answering: whether the loss is divided by `num_items_in_batch`.
  bool span_loss_counts_items = true;
  /// The batch columns that the model reads.
  std::vector<std::string> input_names = {"input_ids", "attention_mask", "position_ids",
                                          "inputs_embeds"};
  /// How names in files differ from names of modules; null when they do not.
  const WeightTable* table = nullptr;
  /// Initialises a module in the architecture's own way. Returns false to leave it to the common
  /// rules.
  bool (*init)(torch::nn::Module&, const Initializer&, const nlohmann::json& config) = nullptr;
};

/// The base of all models that consist of one body and a head.
class BackboneModel : public PreTrainedModel {
 public:
  /// `HeadOptions::input_names` and the labels.
  std::vector<std::string> input_names() const override;
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override {
    body_->gradient_checkpointing = how;
  }
  void set_embedding_noise(std::optional<double> alpha) override { body_->embedding_noise = alpha; }
  torch::nn::Module* input_embedding_module() override { return &body_->input_embeddings(); }
  void resize_token_embeddings(int64_t count) override;
  std::vector<std::string> droppable_masks() const override { return {"attention_mask"}; }
  bool is_recordable() const override { return options_.is_recordable; }
  nlohmann::json memory() const override { return body_->memory(); }
  void load_memory(const nlohmann::json& memory) override { body_->load_memory(memory); }
  std::optional<int64_t> position_limit() const override { return body_->position_limit(); }
  std::optional<AttentionShape> attention_shape(const Batch& inputs) const override;
  /// The body.
  Backbone& body() { return *body_; }

 protected:
  /// Registers `body` under `options.prefix`.
  BackboneModel(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body);
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  const WeightTable& weight_table() const override;
  /// The body's inputs from a batch; see `backbone_inputs`.
  BackboneInputs body_inputs(const Batch& inputs, const ForwardOptions& options) const;
  /// Adds the body's hidden states and attentions as "hidden_states.0", "attentions.0" and so on.
  static ModelOutput with_extras(ModelOutput output, const BackboneOutput& body);

  HeadOptions options_;             ///< As given to the constructor.
  std::shared_ptr<Backbone> body_;  ///< Never null.
};

/// The body without a head. Returns `last_hidden_state`, and `pooler_output` if it has a pooler.
class BaseModel : public BackboneModel {
 public:
  /// Wraps `body`.
  BaseModel(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  /// The body, so that files hold its names without a prefix.
  torch::nn::Module& named_module() override { return *body_; }
  /// None: there is no loss.
  std::vector<std::string> label_names() const override { return {}; }
};

/// Predicts the next token.
///
/// Labels are shifted inside: pass the input ids, with -100 for tokens that the loss ignores.
class CausalLM : public BackboneModel {
 public:
  /// Builds a head for `vocabulary` token ids on `body`. Parameters have no values yet.
  CausalLM(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
           int64_t vocabulary);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  /// True for nearly all: the label of position t + 1 is the target of position t.
  bool shifts_labels() const override { return options_.shifts_labels; }
  bool counts_shifted_labels() const override { return options_.counts_shifted_labels; }
  bool can_generate() const override { return true; }
  torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override;
  bool decodes_in_place() const override { return body_->decodes_in_place(); }

 protected:
  std::vector<torch::Tensor> vocabulary_parameters() override { return {head_->weight}; }

 private:
  std::shared_ptr<layers::Linear> head_;
};

/// Scores each class from the last token of a row that is not padding. With one class it is a
/// reward or regression model.
class CausalSequenceClassifier : public BackboneModel {
 public:
  /// Builds the head on `body`. Parameters have no values yet.
  CausalSequenceClassifier(nlohmann::json config, HeadOptions options,
                           std::shared_ptr<Backbone> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  /// Also remembers the pad token, which finds the last token of a row.
  void align_special_tokens(const TokenizerLike& tokenizer) override;

 private:
  /// The position of each row's last token that is not padding.
  torch::Tensor last_tokens(const BackboneInputs& inputs) const;

  std::shared_ptr<layers::Linear> head_;
  std::optional<int64_t> pad_token_;
  /// From the config; otherwise the first labels decide it, also in the config, as in transformers.
  std::optional<std::string> problem_type_;
};

/// Scores each class for every token.
///
/// Labels of -100 mark tokens without a label, such as special tokens and the later parts of a
/// word.
class TokenClassifier : public BackboneModel {
 public:
  /// Builds the head on `body`, with `dropout` before it. Parameters have no values yet.
  TokenClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                  double dropout);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 private:
  std::shared_ptr<layers::Linear> head_;
  double dropout_;
};

/// Finds the start and end of an answer. Returns `start_logits` and `end_logits` (batch, tokens).
class SpanClassifier : public BackboneModel {
 public:
  /// Builds the head on `body`, with `dropout` before it. Parameters have no values yet.
  SpanClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                 double dropout = 0.0);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  /// Start and end of the answer, in tokens.
  std::vector<std::string> label_names() const override {
    return {"start_positions", "end_positions"};
  }

 private:
  std::shared_ptr<layers::Linear> head_;
  double dropout_;
};

}  // namespace gradus
