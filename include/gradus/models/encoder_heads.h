#pragma once

#include <gradus/models/heads.h>
#include <gradus/models/layers/activation.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <string>

namespace gradus {

/// The layers of a masked language model's head. Each name is a path in the module tree, for
/// example "cls.predictions.transform.dense".
struct MaskedLMOptions {
  std::string dense;    ///< Path of the dense layer.
  std::string norm;     ///< Path of the layer norm.
  std::string decoder;  ///< Path of the projection to the vocabulary.
  std::string bias;     ///< A second path of the decoder's bias; empty when it has only one.
  layers::Activation activation = nullptr;  ///< Between `dense` and `norm`.
  double norm_eps = 1e-12;                  ///< Epsilon of the norm.
  int64_t vocabulary = 0;                   ///< Number of token ids.
};

/// Predicts the token at each labelled position: decoder(norm(activation(dense(hidden)))).
///
/// Labels are not shifted. Without `need_logits` the logits are computed in chunks, on the CPU only
/// for the labelled positions.
class MaskedLM : public BackboneModel {
 public:
  /// Builds the head on `body`. Parameters have no values yet.
  MaskedLM(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
           const MaskedLMOptions& head);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 protected:
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  std::vector<torch::Tensor> vocabulary_parameters() override {
    return {decoder_->weight, decoder_->bias, bias_};
  }
  /// norm(activation(dense(hidden))), which the decoder reads.
  torch::Tensor transformed(const torch::Tensor& hidden);
  /// The projection to the vocabulary.
  layers::Linear& decoder() { return *decoder_; }

 private:
  torch::Tensor loss_without_logits(const torch::Tensor& hidden, const torch::Tensor& labels);

  std::shared_ptr<layers::Linear> dense_, decoder_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
  torch::Tensor bias_;  ///< The bias under its second name.
  layers::Activation activation_;
};

/// How scores are computed from the first token of a row.
struct SequenceHeadOptions {
  std::string dense;  ///< Path of a dense layer; empty to use the body's `pooler_output`.
  std::string scores = "classifier";        ///< Path of the projection to the classes.
  layers::Activation activation = nullptr;  ///< After `dense`.
  double dropout = 0.0;                     ///< Before `scores`.
  double input_dropout = 0.0;               ///< Before `dense`.
};

/// Scores each class from the first token of a row. With one class it is a reward or regression
/// model.
class SequenceClassifier : public BackboneModel {
 public:
  /// Builds the head on `body`. Parameters have no values yet.
  SequenceClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                     SequenceHeadOptions head);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 private:
  torch::Tensor scores_of(const BackboneOutput& body) const;

  SequenceHeadOptions head_;
  std::shared_ptr<layers::Linear> dense_, scores_;
  /// From the config; otherwise the first labels decide it, also in the config, as in transformers.
  std::optional<std::string> problem_type_;
};

}  // namespace gradus
