#include <gradus/core/error.h>
#include <gradus/models/backbone.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/losses.h>
#include <gradus/models/speech_models.h>

#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "models/wav2vec2/speech_body.h"

namespace gradus {

using torch::Tensor;

namespace {

void draw_uniform(const Initializer& initializer, const Tensor& tensor, double low, double high) {
  if (!initializer.wants(tensor)) return;
  torch::NoGradGuard no_grad;
  tensor.uniform_(low, high);
}

/// Beyond the loss and the head's outputs: hidden states and attentions, when asked for.
ModelOutput with_speech_extras(ModelOutput output, const SpeechOutput& body) {
  for (size_t i = 0; i < body.hidden_states.size(); ++i)
    output.set(fmt::format("hidden_states.{}", i), body.hidden_states[i]);
  for (size_t i = 0; i < body.attentions.size(); ++i)
    output.set(fmt::format("attentions.{}", i), body.attentions[i]);
  return output;
}

void check_ctc_labels(const Tensor& labels, int64_t vocabulary) {
  if (!labels.is_cpu() || labels.numel() == 0) return;
  const auto largest = labels.max().item<int64_t>();
  if (largest >= vocabulary)
    throw Error(
        "G-MODEL-10", ErrorKind::data,
        fmt::format("labels: {} is outside the {} characters of the model", largest, vocabulary),
        "Model and vocabulary do not belong together: set vocab_size of the config to the "
        "size of vocab.json.");
}

}  // namespace

SpeechModel::SpeechModel(nlohmann::json config, const char* suffix,
                         std::shared_ptr<SpeechBody> body)
    : PreTrainedModel(std::move(config), std::string(body->config.family->name) + suffix,
                      body->config.family->prefix),
      body_(std::move(body)) {
  register_module(body_->config.family->prefix, body_);
}

SpeechModel::~SpeechModel() = default;

void SpeechModel::gradient_checkpointing_enable(const GradientCheckpointing& how) {
  body_->gradient_checkpointing = how;
}

void SpeechModel::freeze_feature_encoder() {
  for (auto& parameter : body_->convolutions->parameters()) parameter.set_requires_grad(false);
}

void SpeechModel::freeze_base_model() {
  for (auto& parameter : body_->parameters()) parameter.set_requires_grad(false);
}

int64_t SpeechModel::frames(int64_t samples) const {
  return std::max<int64_t>(body_->config.frames(samples, /*with_adapter=*/true), 0);
}

int64_t SpeechModel::samples_per_frame() const {
  const auto& strides = body_->config.conv_stride;
  return std::accumulate(strides.begin(), strides.end(), int64_t{1}, std::multiplies<>());
}

const WeightTable& SpeechModel::weight_table() const {
  // Names of torch's older weight norm.
  static const WeightTable table{
      {{"*.conv.weight_g", "*.conv.parametrizations.weight.original0", WeightRule::Use::load},
       {"*.conv.weight_v", "*.conv.parametrizations.weight.original1", WeightRule::Use::load}},
      {}};
  return table;
}

void SpeechModel::init_module(torch::nn::Module& module, const Initializer& initializer) const {
  PreTrainedModel::init_module(module, initializer);
  if (const auto* conv = dynamic_cast<SpeechConv*>(&module)) {
    const auto& sizes = conv->options;
    const auto inputs = static_cast<double>(sizes.in / sizes.groups * sizes.kernel);
    initializer.normal(conv->weight, std::sqrt(2.0 / inputs));
    if (body_->config.family->zero_conv_bias)
      initializer.constant(conv->bias, 0.0);
    else
      draw_uniform(initializer, conv->bias, -1.0 / std::sqrt(inputs), 1.0 / std::sqrt(inputs));
  } else if (const auto* normed = dynamic_cast<WeightNormConv*>(&module)) {
    const auto& sizes = normed->options;
    const auto bound = 1.0 / std::sqrt(static_cast<double>(sizes.in / sizes.groups * sizes.kernel));
    draw_uniform(initializer, normed->direction, -bound, bound);
    initializer.constant(normed->bias, 0.0);
    if (!initializer.wants(normed->length)) return;
    torch::NoGradGuard no_grad;
    normed->length.copy_(
        normed->direction.square().sum(at::IntArrayRef{0, 1}, /*keepdim=*/true).sqrt());
  } else if (const auto* group = dynamic_cast<torch::nn::GroupNormImpl*>(&module)) {
    initializer.constant(group->weight, 1.0);
    initializer.constant(group->bias, 0.0);
  } else if (const auto* batch = dynamic_cast<torch::nn::BatchNorm1dImpl*>(&module)) {
    initializer.constant(batch->weight, 1.0);
    initializer.constant(batch->bias, 0.0);
  } else if (const auto* body = dynamic_cast<SpeechBody*>(&module)) {
    draw_uniform(initializer, body->masked_spec_embed, 0.0, 1.0);
    if (body->config.family->zero_conv_bias) return;  // HuBERT's projection is a common layer
    const auto bound = 1.0 / std::sqrt(static_cast<double>(body->projection->weight.size(1)));
    draw_uniform(initializer, body->projection->weight, -bound, bound);
    draw_uniform(initializer, body->projection->bias, -bound, bound);
  }
}

SpeechBaseModel::SpeechBaseModel(nlohmann::json config, std::shared_ptr<SpeechBody> body)
    : SpeechModel(std::move(config), "Model", std::move(body)) {}

torch::nn::Module& SpeechBaseModel::named_module() { return *body_; }

ModelOutput SpeechBaseModel::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = body_->forward(inputs, options);
  return with_speech_extras(
      {{"last_hidden_state", body.last_hidden_state}, {"extract_features", body.extract_features}},
      body);
}

SpeechForCTC::SpeechForCTC(nlohmann::json config, std::shared_ptr<SpeechBody> body)
    : SpeechModel(std::move(config), "ForCTC", std::move(body)) {
  const auto& sizes = body_->config;
  head_ = register_module("lm_head",
                          std::make_shared<layers::Linear>(sizes.output_width, sizes.vocabulary));
}

ModelOutput SpeechForCTC::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto& config = body_->config;
  const auto* labels = inputs.find("labels");
  if (labels != nullptr) check_ctc_labels(*labels, config.vocabulary);
  const auto body = body_->forward(inputs, options);
  const auto logits =
      head_->forward(layers::dropout(body.last_hidden_state, config.final_dropout, is_training()));
  ModelOutput output;
  if (labels != nullptr) {
    const auto& sound = inputs["input_values"];
    const auto mask = needed_mask(inputs, "attention_mask", sound.size(0), sound.size(1));
    const auto samples = mask.defined() ? mask.to(torch::kLong).sum(-1)
                                        : at::full({sound.size(0)}, sound.size(1),
                                                   sound.options().dtype(torch::kLong));
    const auto counted = labels->ne(-100).logical_and(labels->ne(config.blank));
    const auto log_probabilities = at::log_softmax(logits, -1, torch::kFloat).transpose(0, 1);
    output.set("loss",
               at::ctc_loss(
                   log_probabilities, labels->masked_select(counted),
                   body_->frames_of(samples, /*with_adapter=*/true), counted.sum(-1), config.blank,
                   config.ctc_reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum,
                   config.zero_infinity));
  }
  output.set("logits", logits);
  return with_speech_extras(std::move(output), body);
}

SpeechForSequenceClassification::SpeechForSequenceClassification(nlohmann::json config,
                                                                 std::shared_ptr<SpeechBody> body)
    : SpeechModel(std::move(config), "ForSequenceClassification", std::move(body)) {
  const auto& sizes = body_->config;
  if (sizes.has_adapter)
    throw Error("G-MODEL-5", ErrorKind::model,
                "config.json: add_adapter must be false for sequence classification",
                "As in transformers the classifier takes a model without these layers.");
  if (sizes.weighted_layers)
    layer_weights_ = register_parameter("layer_weights", at::empty({sizes.blocks + 1}));
  projector_ = register_module(
      "projector", std::make_shared<layers::Linear>(sizes.width, sizes.classifier_width));
  classifier_ = register_module(
      "classifier", std::make_shared<layers::Linear>(sizes.classifier_width, num_labels(config_)));
}

void SpeechForSequenceClassification::init_module(torch::nn::Module& module,
                                                  const Initializer& initializer) const {
  SpeechModel::init_module(module, initializer);
  if (&module == this)
    initializer.constant(layer_weights_, 1.0 / static_cast<double>(body_->config.blocks + 1));
}

ModelOutput SpeechForSequenceClassification::forward(const Batch& inputs,
                                                     const ForwardOptions& options) {
  auto asked = options;
  if (layer_weights_.defined()) asked.output_hidden_states = true;
  auto body = body_->forward(inputs, asked);
  auto hidden = body.last_hidden_state;
  if (layer_weights_.defined()) {
    if (static_cast<int64_t>(body.hidden_states.size()) != layer_weights_.numel())
      throw Error("G-MODEL-5", ErrorKind::model,
                  "config.json: layerdrop must be 0 with use_weighted_layer_sum",
                  "A dropped layer has no output that could be weighted.");
    hidden =
        (at::stack(body.hidden_states, 1) * layer_weights_.softmax(-1).view({-1, 1, 1})).sum(1);
    if (!options.output_hidden_states) body.hidden_states.clear();
  }
  hidden = projector_->forward(hidden);
  Tensor pooled;
  if (body.frame_mask.defined()) {
    hidden = hidden.masked_fill(body.frame_mask.logical_not().unsqueeze(-1), 0);
    pooled = hidden.sum(1) / body.frame_mask.sum(1).unsqueeze(-1);
  } else {
    pooled = hidden.mean(1);
  }
  const auto logits = classifier_->forward(pooled);
  ModelOutput output;
  if (const auto* labels = inputs.find("labels")) output.set("loss", token_loss(logits, *labels));
  output.set("logits", logits);
  return with_speech_extras(std::move(output), body);
}

}  // namespace gradus
