#include <gradus/models/config_reader.h>
#include <gradus/models/encoder_heads.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/losses.h>

#include <ATen/ops/empty.h>

namespace gradus {

using torch::Tensor;

MaskedLM::MaskedLM(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                   const MaskedLMOptions& head)
    : BackboneModel(std::move(config), std::move(options), std::move(body)),
      activation_(head.activation) {
  const auto width = body_->hidden_size();
  const bool two_names = !head.bias.empty();
  if (two_names) {
    const auto dot = head.bias.rfind('.');
    bias_ = layers::module_at(*this, std::string_view(head.bias).substr(0, dot))
                .register_parameter(head.bias.substr(dot + 1), at::empty({head.vocabulary}));
  }
  dense_ = layers::register_at(*this, head.dense, std::make_shared<layers::Linear>(width, width));
  norm_ = layers::register_at(*this, head.norm,
                              std::make_shared<torch::nn::LayerNormImpl>(
                                  torch::nn::LayerNormOptions({width}).eps(head.norm_eps)));
  const bool own_bias = !(options_.tied && two_names);
  decoder_ = layers::register_at(
      *this, head.decoder, std::make_shared<layers::Linear>(width, head.vocabulary, own_bias));
  if (options_.tied) decoder_->tie(body_->input_embeddings().weight);
  if (!own_bias) decoder_->tie_bias(bias_);
}

void MaskedLM::init_module(torch::nn::Module& module, const Initializer& initializer) const {
  if (&module == this) initializer.constant(bias_, 0.0);
  BackboneModel::init_module(module, initializer);
}

Tensor MaskedLM::transformed(const Tensor& hidden) {
  return norm_->forward(activation_(dense_->forward(hidden)));
}

Tensor MaskedLM::loss_without_logits(const Tensor& hidden, const Tensor& labels) {
  auto rows = hidden.reshape({-1, hidden.size(-1)});
  auto targets = labels;
  if (rows.is_cpu() && labels.is_cpu() && labels.numel() == rows.size(0)) {
    targets = labels.reshape({-1});
    const auto labelled = targets.ne(-100).nonzero().squeeze(1);
    rows = rows.index_select(0, labelled);
    targets = targets.index_select(0, labelled);
  }
  return lm_head_loss(*decoder_, transformed(rows), Tensor(), targets, std::nullopt);
}

ModelOutput MaskedLM::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = body_->forward(body_inputs(inputs, options));
  const auto* labels = inputs.find("labels");
  ModelOutput output;
  if (labels != nullptr && !options.need_logits) {
    output.set("loss", loss_without_logits(body.last_hidden_state, *labels));
  } else {
    const auto logits = decoder_->forward(transformed(body.last_hidden_state));
    if (labels != nullptr) output.set("loss", token_loss(logits, *labels));
    output.set("logits", logits);
  }
  return with_extras(std::move(output), body);
}

SequenceClassifier::SequenceClassifier(nlohmann::json config, HeadOptions options,
                                       std::shared_ptr<Backbone> body, SequenceHeadOptions head)
    : BackboneModel(std::move(config), std::move(options), std::move(body)),
      head_(std::move(head)) {
  const auto width = body_->hidden_size();
  if (!head_.dense.empty())
    dense_ =
        layers::register_at(*this, head_.dense, std::make_shared<layers::Linear>(width, width));
  scores_ = layers::register_at(*this, head_.scores,
                                std::make_shared<layers::Linear>(width, num_labels(config_)));
  problem_type_ = problem_type_in(config_);
}

Tensor SequenceClassifier::scores_of(const BackboneOutput& body) const {
  auto x = body.pooler_output;
  if (dense_ != nullptr) {
    const auto first = body.last_hidden_state.select(1, 0);
    x = head_.activation(
        dense_->forward(layers::dropout(first, head_.input_dropout, is_training())));
  }
  return scores_->forward(layers::dropout(x, head_.dropout, is_training()));
}

ModelOutput SequenceClassifier::forward(const Batch& inputs, const ForwardOptions& options) {
  auto given = body_inputs(inputs, options);
  given.first_token_only = true;
  const auto body = body_->forward(given);
  const auto logits = scores_of(body);
  ModelOutput output;
  if (const auto* labels = inputs.find("labels")) {
    if (!problem_type_)
      problem_type_ = config_["problem_type"] = problem_type_of(logits.size(-1), *labels);
    output.set("loss", sequence_classification_loss(logits, *labels, problem_type_));
  }
  output.set("logits", logits);
  return with_extras(std::move(output), body);
}

}  // namespace gradus
