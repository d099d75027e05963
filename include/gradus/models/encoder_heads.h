#pragma once

#include <gradus/models/heads.h>
#include <gradus/models/layers/activation.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <string>

namespace gradus {

/// Layers of a masked language model's head, each under a path of names
/// ("cls.predictions.transform.dense").
struct MaskedLMOptions {
  std::string dense, norm, decoder;
  std::string
      bias;  ///< a second name of the decoder's bias ("cls.predictions.bias"); empty: it has none
  layers::Activation activation = nullptr;
  double norm_eps = 1e-12;
  int64_t vocabulary = 0;
};

/// Predicts the token at each position that has a label: decoder(norm(activation(dense(hidden)))).
/// Labels are not shifted. Without `need_logits` the logits are made in chunks, on the CPU only for
/// the positions with a label.
class MaskedLM : public BackboneModel {
 public:
  MaskedLM(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
           const MaskedLMOptions& head);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 protected:
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override;
  std::vector<torch::Tensor> vocabulary_parameters() override {
    return {decoder_->weight, decoder_->bias, bias_};
  }

 private:
  torch::Tensor transformed(const torch::Tensor& hidden);
  torch::Tensor loss_without_logits(const torch::Tensor& hidden, const torch::Tensor& labels);

  std::shared_ptr<layers::Linear> dense_, decoder_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
  torch::Tensor bias_;  ///< under the second name; the decoder's own where the head is tied
  layers::Activation activation_;
};

/// How the vector of a row's first token becomes scores.
struct SequenceHeadOptions {
  std::string
      dense;  ///< path of a layer in between; empty: the body's pooler_output is taken instead
  std::string scores = "classifier";
  layers::Activation activation = nullptr;  ///< behind `dense`
  double dropout = 0.0;                     ///< in front of `scores`
  double input_dropout = 0.0;               ///< in front of `dense`
};

/// A score per class from the first token of each row. With one class: a reward or regression
/// model.
class SequenceClassifier : public BackboneModel {
 public:
  SequenceClassifier(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                     SequenceHeadOptions head);
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;

 private:
  torch::Tensor scores_of(const BackboneOutput& body) const;

  SequenceHeadOptions head_;
  std::shared_ptr<layers::Linear> dense_, scores_;
  std::optional<std::string> problem_type_;  ///< of the config; else set, there too, by the first
                                             ///< labels, as in transformers
};

}  // namespace gradus
