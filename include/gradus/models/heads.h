#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/pretrained_model.h>

#include <memory>
#include <string>

namespace gradus {

/// What a head needs to know of the architecture it stands on.
struct HeadOptions {
  std::string class_name;      ///< transformers' name: "GPT2ForSequenceClassification"
  std::string prefix;          ///< name of the body's module: "transformer"
  std::string head = "score";  ///< name of the head's module
  bool tied = false;  ///< language models: the head's weight is the table of token embeddings
  bool counts_shifted_labels = true;  ///< language models: see `Model::counts_shifted_labels`
  bool packs_by_position_ids = true;  ///< position_ids that start anew separate packed sequences;
                                      ///< without, only seq_idx and cu_seq_lens_q do
  bool span_loss_counts_items =
      true;  ///< question answering: `num_items_in_batch` divides the loss
  std::vector<std::string> input_names = {"input_ids", "attention_mask", "position_ids",
                                          "inputs_embeds"};
  const WeightTable* table = nullptr;  ///< null: names of files are names of modules
  /// Initialises a module its own way; false leaves it to the common rules.
  bool (*init)(torch::nn::Module&, const Initializer&, const nlohmann::json& config) = nullptr;
};

/// The common part of models with one body.
class BackboneModel : public PreTrainedModel {
 public:
  std::vector<std::string> input_names() const override;
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override {
    body_->gradient_checkpointing = how;
  }
  void set_embedding_noise(std::optional<double> alpha) override { body_->embedding_noise = alpha; }
  torch::nn::Module* input_embedding_module() override { return &body_->input_embeddings(); }
  Backbone& body() { return *body_; }

 protected:
  BackboneModel(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body);
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  const WeightTable& weight_table() const override;
  BackboneInputs body_inputs(const Batch& inputs, const ForwardOptions& options) const;
  /// `output` with hidden states and attentions as "hidden_states.0" …, "attentions.0" …
  static ModelOutput with_extras(ModelOutput output, const BackboneOutput& body);

  HeadOptions options_;
  std::shared_ptr<Backbone> body_;
};

/// The body alone: gives `last_hidden_state`, and `pooler_output` where the body pools.
class BaseModel : public BackboneModel {
 public:
  BaseModel(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  torch::nn::Module& named_module() override { return *body_; }
  std::vector<std::string> label_names() const override { return {}; }
};

/// Predicts the next token. Labels are shifted inside: give the input ids, -100 where nothing is to
/// be learned.
class CausalLM : public BackboneModel {
 public:
  CausalLM(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
           int64_t vocabulary);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  bool shifts_labels() const override { return true; }
  bool counts_shifted_labels() const override { return options_.counts_shifted_labels; }
  bool can_generate() const override { return true; }
  torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override;

 protected:
  std::vector<torch::Tensor> vocabulary_parameters() override { return {head_->weight}; }

 private:
  std::shared_ptr<layers::Linear> head_;
};

/// A score per class from the last token of each row that is not padding. With one class: a reward
/// or regression model.
class CausalSequenceClassifier : public BackboneModel {
 public:
  CausalSequenceClassifier(nlohmann::json config, HeadOptions options,
                           std::shared_ptr<Backbone> body);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  void align_special_tokens(const TokenizerLike& tokenizer) override;

 private:
  torch::Tensor last_tokens(const BackboneInputs& inputs) const;

  std::shared_ptr<layers::Linear> head_;
  std::optional<int64_t> pad_token_;
  std::optional<std::string> problem_type_;  ///< of the config; else set, there too, by the first
                                             ///< labels, as in transformers
};

/// A score per class for every token.
class TokenClassifier : public BackboneModel {
 public:
  TokenClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                  double dropout);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 private:
  std::shared_ptr<layers::Linear> head_;
  double dropout_;
};

/// Start and end of an answer: `start_logits` and `end_logits` (batch, tokens).
class SpanClassifier : public BackboneModel {
 public:
  SpanClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                 double dropout = 0.0);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> label_names() const override {
    return {"start_positions", "end_positions"};
  }

 private:
  std::shared_ptr<layers::Linear> head_;
  double dropout_;
};

}  // namespace gradus
