#pragma once

#include <gradus/models/backbone.h>
#include <gradus/models/pretrained_model.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// The two stacks of a model with encoder and decoder, and the table of embeddings they share.
struct Stacks {
  std::shared_ptr<layers::Embedding> shared;  ///< The table.
  std::shared_ptr<Backbone> encoder;          ///< Reads the input.
  std::shared_ptr<Backbone> decoder;          ///< Writes; null for an encoder alone.

  /// Registers the parts in `owner` under transformers' names. `tied`: the stacks use the table.
  void register_in(torch::nn::Module& owner, bool tied);
};

/// What the heads need to know about their architecture.
struct EncoderDecoderOptions {
  std::string class_name;     ///< The class in transformers: "BartForConditionalGeneration".
  std::string base_prefix;    ///< Names in files may lack it; see `PreTrainedModel`.
  std::string prefix;         ///< The module that holds the stacks; empty for the model itself.
  bool tied = true;           ///< Whether stacks and head use the common table.
  bool is_recordable = true;  ///< See `Model::is_recordable`.
  /// Whether the decoder reads the shifted input where the batch holds nothing for it.
  bool decoder_reads_input = false;
  /// The decoder's input that predicts `ids`; `class_name` is for messages.
  torch::Tensor (*shift)(const torch::Tensor& ids, const nlohmann::json& config,
                         const std::string& class_name) = nullptr;
  /// Initialises a module in the architecture's own way; see `HeadOptions::init`. May be null.
  bool (*init)(torch::nn::Module&, const Initializer&, const nlohmann::json& config) = nullptr;
  const WeightTable* table = nullptr;  ///< How names in files differ; null when they do not.
};

/// The ids after the config's decoder_start_token_id, -100 as padding. Throws `Error` G-MODEL-30
/// when the config lacks one of the two.
torch::Tensor shifted_after_start(const torch::Tensor& ids, const nlohmann::json& config,
                                  const std::string& class_name);

/// Says that NEFTune does nothing for T5, BART and their kind. In transformers its noise is added
/// to what `model.shared` gives, which nothing asks since version 5 until the vocabulary is
/// resized.
void warn_of_no_noise();

/// What encoder and decoder gave.
struct EncoderDecoderOutput {
  torch::Tensor encoder_last_hidden_state;
  BackboneOutput encoder, decoder;
};

/// The base of the models with encoder and decoder. It has no head itself: `last_hidden_state` is
/// the decoder's.
class EncoderDecoderModel : public PreTrainedModel {
 public:
  EncoderDecoderModel(nlohmann::json config, EncoderDecoderOptions options, Stacks stacks);

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> label_names() const override { return {}; }
  std::vector<std::string> input_names() const override;
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override;
  void set_embedding_noise(std::optional<double> alpha) override;
  void resize_token_embeddings(int64_t count) override;
  torch::nn::Module* input_embedding_module() override { return stacks_.shared.get(); }
  /// `attention_shape` stays unanswered: three kinds of attention are not measured.
  std::vector<std::string> droppable_masks() const override {
    return {"attention_mask", "decoder_attention_mask"};
  }
  bool is_encoder_decoder() const override { return true; }
  /// Those of the decoder.
  std::optional<int64_t> position_limit() const override {
    return stacks_.decoder->position_limit();
  }
  bool is_recordable() const override { return options_.is_recordable; }
  torch::Tensor prepare_decoder_input_ids_from_labels(const torch::Tensor& labels) const override {
    return options_.shift(labels, config_, class_name());
  }
  /// The table and the stacks.
  const Stacks& stacks() const { return stacks_; }

 protected:
  /// Runs both stacks; the decoder's tokens come from the batch or, when it has none, from
  /// `shifted_from`.
  EncoderDecoderOutput run(const Batch& inputs, const ForwardOptions& options,
                           const torch::Tensor& shifted_from);
  /// Adds hidden states and attentions of both stacks.
  static ModelOutput with_stack_extras(ModelOutput output, const EncoderDecoderOutput& body);
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  const WeightTable& weight_table() const override;
  /// The tables of the stacks, which have no common one when nothing is tied.
  std::vector<torch::Tensor> vocabulary_parameters() override;

  EncoderDecoderOptions options_;
  Stacks stacks_;

 private:
  BackboneInputs decoder_inputs(const Batch& inputs, torch::Tensor shifted_from) const;

  bool is_resized_ = false;  // in transformers both stacks then ask `shared`
};

/// How the language model turns the decoder's output into logits.
struct GenerationHeadOptions {
  int64_t vocabulary;      ///< Number of token ids.
  double scale = 1.0;      ///< Of the decoder's output before the head.
  bool with_bias = false;  ///< Whether there is a buffer `final_logits_bias`.
};

/// Writes a text for a text. The loss is the mean over the labels; `num_items_in_batch` is not
/// used, as in transformers.
class ConditionalGenerator : public EncoderDecoderModel {
 public:
  ConditionalGenerator(nlohmann::json config, EncoderDecoderOptions options, Stacks stacks,
                       const GenerationHeadOptions& head);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> label_names() const override { return {"labels"}; }
  bool can_generate() const override { return true; }
  torch::Tensor encode(const Batch& inputs) override;
  torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override;
  bool decodes_in_place() const override { return stacks_.decoder->decodes_in_place(); }
  void resize_token_embeddings(int64_t count) override;
  /// The projection to the vocabulary.
  const layers::Linear& head() const { return *lm_head_; }

 protected:
  std::vector<torch::Tensor> vocabulary_parameters() override;

 private:
  torch::Tensor scaled(const torch::Tensor& hidden) const;
  torch::Tensor logits_of(const torch::Tensor& hidden) const;

  GenerationHeadOptions head_options_;
  torch::Tensor final_logits_bias_;
  std::shared_ptr<layers::Linear> lm_head_;
};

/// Two layers with tanh between them.
class ClassificationHead : public torch::nn::Module {
 public:
  ClassificationHead(int64_t width, int64_t classes, double dropout);
  torch::Tensor forward(const torch::Tensor& x) const;
  std::shared_ptr<layers::Linear> dense, out_proj;

 private:
  double dropout_;
};

/// A score per class from the decoder's output at the last end token of the input, which the
/// decoder reads too.
class EncoderDecoderClassifier : public EncoderDecoderModel {
 public:
  EncoderDecoderClassifier(nlohmann::json config, EncoderDecoderOptions options, Stacks stacks,
                           double dropout);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> label_names() const override { return {"labels"}; }
  /// The head.
  const ClassificationHead& head() const { return *head_; }

 private:
  torch::Tensor last_ends(const torch::Tensor& ids) const;

  std::shared_ptr<ClassificationHead> head_;
  std::optional<std::string> problem_type_;
};

/// Start and end of an answer in the decoder's output; the decoder reads the shifted input.
class EncoderDecoderSpans : public EncoderDecoderModel {
 public:
  EncoderDecoderSpans(nlohmann::json config, EncoderDecoderOptions options, Stacks stacks);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> label_names() const override {
    return {"start_positions", "end_positions"};
  }
  /// The projection to start and end.
  const layers::Linear& head() const { return *qa_outputs_; }

 private:
  std::shared_ptr<layers::Linear> qa_outputs_;
};

}  // namespace gradus
