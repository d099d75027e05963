#include <gradus/core/error.h>
#include <gradus/kernels/fused.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/heads.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/losses.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

namespace gradus {

using torch::Tensor;

namespace {

/// What `TokenScoring` asks for.
ModelOutput token_scores(const layers::Linear& head, const Tensor& hidden,
                         const TokenScoring& asked) {
  const auto rows = hidden.reshape({-1, hidden.size(-1)});
  const auto labels = shifted_labels(asked.labels).reshape({-1});
  const auto shaped = [&](const Tensor& values) { return values.view(asked.labels.sizes()); };
  ModelOutput output;
  kernels::LinearTokenScores scores;
  if (asked.loss_scale.defined()) {
    const auto both = kernels::linear_token_loss(rows, head.weight, head.bias, labels,
                                                 asked.loss_scale, asked.weights_by_prob);
    output.set("loss", both.loss);
    scores = both.scores;
  } else {
    scores = kernels::linear_token_scores(rows, head.weight, head.bias, labels, asked.temperature);
  }
  output.set("token_log_probs", shaped(scores.log_probs));
  output.set("token_entropy", shaped(scores.entropy));
  output.set("token_facts", at::stack({shaped(scores.mean_logits), shaped(scores.is_top1),
                                       shaped(scores.log_sum_sq_probs)},
                                      -1));
  return output;
}

}  // namespace

BackboneModel::BackboneModel(nlohmann::json config, HeadOptions options,
                             std::shared_ptr<Backbone> body)
    : PreTrainedModel(std::move(config), options.class_name, options.prefix),
      options_(std::move(options)) {
  body_ = layers::register_at(
      *this,
      options_.body.empty() ? (options_.prefix.empty() ? "model" : options_.prefix) : options_.body,
      std::move(body));
}

std::vector<std::string> BackboneModel::input_names() const {
  auto names = options_.input_names;
  for (auto& label : label_names()) names.push_back(label);
  return names;
}

void BackboneModel::resize_token_embeddings(int64_t count) {
  PreTrainedModel::resize_token_embeddings(count);
  body_->tokens_resized();
}

std::optional<AttentionShape> BackboneModel::attention_shape(const Batch& inputs) const {
  auto shape = body_->attention_shape();
  const auto* tokens = inputs.find("input_ids");
  if (tokens == nullptr) tokens = inputs.find("inputs_embeds");
  if (!shape || tokens == nullptr || !tokens->defined() || tokens->dim() < 2) return std::nullopt;
  shape->batch = tokens->size(0);
  shape->tokens = tokens->size(1);
  return shape;
}

void BackboneModel::init_module(torch::nn::Module& module, const Initializer& initializer) const {
  if (options_.init != nullptr && options_.init(module, initializer, config_)) return;
  PreTrainedModel::init_module(module, initializer);
}

const WeightTable& BackboneModel::weight_table() const {
  return options_.table != nullptr ? *options_.table : PreTrainedModel::weight_table();
}

BackboneInputs BackboneModel::body_inputs(const Batch& inputs,
                                          const ForwardOptions& options) const {
  auto given = backbone_inputs(inputs, options);
  if (!options_.packs_by_position_ids && !inputs.contains("seq_idx") &&
      !inputs.contains("cu_seq_lens_q"))
    given.sequence_ids = Tensor();
  return given;
}

ModelOutput BackboneModel::with_extras(ModelOutput output, const BackboneOutput& body) {
  for (size_t i = 0; i < body.hidden_states.size(); ++i)
    output.set(fmt::format("hidden_states.{}", i), body.hidden_states[i]);
  for (size_t i = 0; i < body.attentions.size(); ++i)
    output.set(fmt::format("attentions.{}", i), body.attentions[i]);
  return output;
}

BaseModel::BaseModel(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body)
    : BackboneModel(std::move(config), std::move(options), std::move(body)) {}

ModelOutput BaseModel::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = body_->forward(body_inputs(inputs, options));
  ModelOutput output{{"last_hidden_state", body.last_hidden_state}};
  if (body.pooler_output.defined()) output.set("pooler_output", body.pooler_output);
  return with_extras(std::move(output), body);
}

CausalLM::CausalLM(nlohmann::json config, HeadOptions options, std::shared_ptr<Backbone> body,
                   int64_t vocabulary)
    : BackboneModel(std::move(config), std::move(options), std::move(body)) {
  head_ =
      register_module("lm_head", std::make_shared<layers::Linear>(
                                     body_->hidden_size(), options_.tied ? 1 : vocabulary, false));
  if (options_.tied) head_->tie(body_->input_embeddings().weight);
}

ModelOutput CausalLM::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = body_->forward(body_inputs(inputs, options));
  if (options.token_scoring && !head_->adapter &&
      kernels::linear_token_scores_apply(body.last_hidden_state, head_->weight, head_->bias))
    return with_extras(token_scores(*head_, body.last_hidden_state, *options.token_scoring), body);
  const auto* labels = inputs.find("labels");
  const auto* shifted = inputs.find("shift_labels");
  const bool with_loss = labels != nullptr || shifted != nullptr;
  const auto logits =
      options.need_logits || !with_loss ? head_->forward(body.last_hidden_state) : Tensor();
  ModelOutput output;
  if (with_loss)
    output.set("loss",
               lm_head_loss(*head_, body.last_hidden_state, logits,
                            shifted != nullptr       ? *shifted
                            : options_.shifts_labels ? shifted_labels(*labels)
                                                     : *labels,
                            options_.shifts_labels ? options.num_items_in_batch : std::nullopt));
  if (logits.defined()) output.set("logits", logits);
  return with_extras(std::move(output), body);
}

Tensor CausalLM::decode(const Batch& inputs, layers::KeyValueCache& cache) {
  auto given = backbone_inputs(inputs);
  given.sequence_ids = Tensor();
  given.cache = &cache;
  const auto hidden = body_->forward(given).last_hidden_state;
  return head_->forward(hidden.select(1, hidden.size(1) - 1));
}

CausalSequenceClassifier::CausalSequenceClassifier(nlohmann::json config, HeadOptions options,
                                                   std::shared_ptr<Backbone> body)
    : BackboneModel(std::move(config), std::move(options), std::move(body)) {
  const ConfigReader reader(config_);
  head_ = register_module(options_.head, std::make_shared<layers::Linear>(
                                             body_->hidden_size(), num_labels(config_), false));
  pad_token_ = reader.optional_integer("pad_token_id", -(int64_t{1} << 31));
  problem_type_ = problem_type_in(config_);
}

void CausalSequenceClassifier::align_special_tokens(const TokenizerLike& tokenizer) {
  PreTrainedModel::align_special_tokens(tokenizer);
  pad_token_ = ConfigReader(config_).optional_integer("pad_token_id", -(int64_t{1} << 31));
}

Tensor CausalSequenceClassifier::last_tokens(const BackboneInputs& inputs) const {
  if (!pad_token_ && inputs.rows() != 1)
    throw Error(
        "G-MODEL-14", ErrorKind::model,
        fmt::format("{} received {} rows, but config.json has no pad_token_id: the last token "
                    "of a row cannot be found",
                    class_name(), inputs.rows()),
        "Set pad_token_id in config.json (and pad with it), or use batches of one row.");
  const auto options =
      torch::TensorOptions()
          .dtype(torch::kInt)
          .device((inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds).device());
  if (!pad_token_ || !inputs.input_ids.defined())
    return torch::full({inputs.rows()}, inputs.tokens() - 1, options.dtype(torch::kLong));
  const auto text = inputs.input_ids.ne(*pad_token_).to(torch::kInt);
  return (at::arange(inputs.tokens(), options) * text).argmax(-1);
}

ModelOutput CausalSequenceClassifier::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto given = body_inputs(inputs, options);
  const auto body = body_->forward(given);
  const auto rows = at::arange(
      given.rows(),
      torch::TensorOptions().dtype(torch::kLong).device(body.last_hidden_state.device()));
  const auto logits = head_->forward(body.last_hidden_state.index({rows, last_tokens(given)}));
  ModelOutput output;
  if (const auto* labels = inputs.find("labels")) {
    if (!problem_type_)
      problem_type_ = config_["problem_type"] = problem_type_of(logits.size(-1), *labels);
    output.set("loss", sequence_classification_loss(logits, *labels, problem_type_));
  }
  output.set("logits", logits);
  return with_extras(std::move(output), body);
}

TokenClassifier::TokenClassifier(nlohmann::json config, HeadOptions options,
                                 std::shared_ptr<Backbone> body, double dropout)
    : BackboneModel(std::move(config), std::move(options), std::move(body)), dropout_(dropout) {
  head_ = register_module(
      options_.head, std::make_shared<layers::Linear>(body_->hidden_size(), num_labels(config_)));
}

ModelOutput TokenClassifier::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = body_->forward(body_inputs(inputs, options));
  const auto logits =
      head_->forward(layers::dropout(body.last_hidden_state, dropout_, is_training()));
  ModelOutput output;
  if (const auto* labels = inputs.find("labels")) output.set("loss", token_loss(logits, *labels));
  output.set("logits", logits);
  return with_extras(std::move(output), body);
}

SpanClassifier::SpanClassifier(nlohmann::json config, HeadOptions options,
                               std::shared_ptr<Backbone> body, double dropout)
    : BackboneModel(std::move(config), std::move(options), std::move(body)), dropout_(dropout) {
  head_ = register_module("qa_outputs", std::make_shared<layers::Linear>(body_->hidden_size(), 2));
}

ModelOutput SpanClassifier::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = body_->forward(body_inputs(inputs, options));
  const auto logits =
      head_->forward(layers::dropout(body.last_hidden_state, dropout_, is_training()));
  const auto start = logits.select(-1, 0).contiguous(), end = logits.select(-1, 1).contiguous();
  ModelOutput output;
  const auto *starts = inputs.find("start_positions"), *ends = inputs.find("end_positions");
  if (starts != nullptr && ends != nullptr)
    output.set("loss", span_loss(start, end, *starts, *ends,
                                 options_.span_loss_counts_items ? options.num_items_in_batch
                                                                 : std::nullopt));
  output.set("start_logits", start);
  output.set("end_logits", end);
  return with_extras(std::move(output), body);
}

}  // namespace gradus
