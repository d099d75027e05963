#include "models/encoder_decoder.h"

#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/losses.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace gradus {

using torch::Tensor;

namespace {

Tensor found_or_undefined(const Batch& inputs, const char* name) {
  const auto* found = inputs.find(name);
  return found == nullptr ? Tensor() : *found;
}

void set_all(ModelOutput& output, const char* name, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) output.set(fmt::format("{}.{}", name, i), tensors[i]);
}

}  // namespace

void Stacks::register_in(torch::nn::Module& owner, bool tied) {
  owner.register_module("shared", shared);
  for (const auto& [name, stack] : {std::pair("encoder", encoder), std::pair("decoder", decoder)}) {
    if (!stack) continue;
    owner.register_module(name, stack);
    if (tied) stack->input_embeddings().tie(shared->weight);
  }
}

Tensor shifted_after_start(const Tensor& ids, const nlohmann::json& config,
                           const std::string& class_name) {
  const ConfigReader read(config);
  const auto start = read.optional_integer("decoder_start_token_id", 0),
             pad = read.optional_integer("pad_token_id", 0);
  if (!start || !pad)
    throw Error("G-MODEL-30", ErrorKind::model,
                fmt::format("{} makes decoder_input_ids from the labels, but config.json has no {}",
                            class_name, start ? "pad_token_id" : "decoder_start_token_id"),
                "Set it in config.json (T5 uses the pad token, 0, for both), or give "
                "decoder_input_ids.");
  const auto first = torch::full_like(ids.narrow(-1, 0, 1), *start);
  const auto shifted = at::cat({first, ids.narrow(-1, 0, ids.size(-1) - 1)}, -1);
  return shifted.masked_fill(shifted.eq(-100), *pad);
}

EncoderDecoderModel::EncoderDecoderModel(nlohmann::json config, EncoderDecoderOptions options,
                                         Stacks stacks)
    : PreTrainedModel(std::move(config), options.class_name, options.base_prefix),
      options_(std::move(options)),
      stacks_(std::move(stacks)) {
  stacks_.register_in(layers::module_at(*this, options_.prefix), options_.tied);
}

ModelOutput EncoderDecoderModel::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = run(inputs, options, {});
  return with_stack_extras({{"last_hidden_state", body.decoder.last_hidden_state}}, body);
}

std::vector<std::string> EncoderDecoderModel::input_names() const {
  std::vector<std::string> names = {"input_ids",         "attention_mask",
                                    "decoder_input_ids", "decoder_attention_mask",
                                    "inputs_embeds",     "decoder_inputs_embeds"};
  for (auto& label : label_names()) names.push_back(label);
  return names;
}

void EncoderDecoderModel::gradient_checkpointing_enable(const GradientCheckpointing& how) {
  stacks_.encoder->gradient_checkpointing = stacks_.decoder->gradient_checkpointing = how;
}

void EncoderDecoderModel::set_embedding_noise(std::optional<double> alpha) {
  stacks_.encoder->embedding_noise = stacks_.decoder->embedding_noise =
      is_resized_ ? alpha : std::nullopt;
  if (alpha && !is_resized_) warn_of_no_noise();
}

void EncoderDecoderModel::resize_token_embeddings(int64_t count) {
  PreTrainedModel::resize_token_embeddings(count);
  is_resized_ = true;
}

void warn_of_no_noise() {
  log_warning_once(
      "neftune_noise_alpha has no effect on models of an encoder and a decoder, as in transformers "
      "5: the embeddings that it would change are not those that the two read.");
}

BackboneInputs EncoderDecoderModel::decoder_inputs(const Batch& inputs, Tensor shifted_from) const {
  BackboneInputs decoder;
  decoder.input_ids = found_or_undefined(inputs, "decoder_input_ids");
  decoder.inputs_embeds = found_or_undefined(inputs, "decoder_inputs_embeds");
  if (!shifted_from.defined() && options_.decoder_reads_input)
    shifted_from = found_or_undefined(inputs, "input_ids");
  if (!decoder.input_ids.defined() && !decoder.inputs_embeds.defined() && shifted_from.defined())
    decoder.input_ids = prepare_decoder_input_ids_from_labels(shifted_from);
  if (decoder.input_ids.defined() == decoder.inputs_embeds.defined())
    throw Error(
        "G-MODEL-11", ErrorKind::model,
        fmt::format("{} takes either decoder_input_ids or decoder_inputs_embeds; the batch holds "
                    "{}",
                    class_name(), decoder.input_ids.defined() ? "both" : "neither"),
        "Give labels, from which the language model makes decoder_input_ids, or one of the two.");
  decoder.attention_mask =
      needed_mask(inputs, "decoder_attention_mask", decoder.rows(), decoder.tokens());
  return decoder;
}

EncoderDecoderOutput EncoderDecoderModel::run(const Batch& inputs, const ForwardOptions& options,
                                              const Tensor& shifted_from) {
  EncoderDecoderOutput output;
  auto decoder = decoder_inputs(inputs, shifted_from);
  auto& states = output.encoder_last_hidden_state;
  states = found_or_undefined(inputs, "encoder_hidden_states");
  if (!states.defined()) {
    auto given = backbone_inputs(inputs, options);
    given.sequence_ids = Tensor();
    output.encoder = stacks_.encoder->forward(given);
    states = output.encoder.last_hidden_state;
  }
  decoder.encoder_hidden_states = states;
  decoder.encoder_attention_mask =
      needed_mask(inputs, "attention_mask", states.size(0), states.size(1));
  decoder.output_attentions = options.output_attentions;
  decoder.output_hidden_states = options.output_hidden_states;
  output.decoder = stacks_.decoder->forward(decoder);
  return output;
}

ModelOutput EncoderDecoderModel::with_stack_extras(ModelOutput output,
                                                   const EncoderDecoderOutput& body) {
  set_all(output, "decoder_hidden_states", body.decoder.hidden_states);
  set_all(output, "decoder_attentions", body.decoder.attentions);
  set_all(output, "cross_attentions", body.decoder.cross_attentions);
  output.set("encoder_last_hidden_state", body.encoder_last_hidden_state);
  set_all(output, "encoder_hidden_states", body.encoder.hidden_states);
  set_all(output, "encoder_attentions", body.encoder.attentions);
  return output;
}

void EncoderDecoderModel::init_module(torch::nn::Module& module,
                                      const Initializer& initializer) const {
  if (options_.init != nullptr && options_.init(module, initializer, config_)) return;
  PreTrainedModel::init_module(module, initializer);
}

const WeightTable& EncoderDecoderModel::weight_table() const {
  return options_.table != nullptr ? *options_.table : PreTrainedModel::weight_table();
}

std::vector<Tensor> EncoderDecoderModel::vocabulary_parameters() {
  return {stacks_.encoder->input_embeddings().weight, stacks_.decoder->input_embeddings().weight};
}

ConditionalGenerator::ConditionalGenerator(nlohmann::json config, EncoderDecoderOptions options,
                                           Stacks stacks, const GenerationHeadOptions& head)
    : EncoderDecoderModel(std::move(config), std::move(options), std::move(stacks)),
      head_options_(head) {
  if (head.with_bias)
    final_logits_bias_ =
        register_buffer("final_logits_bias", at::zeros({1, head.vocabulary}, torch::kFloat));
  lm_head_ = register_module(
      "lm_head", std::make_shared<layers::Linear>(stacks_.decoder->hidden_size(),
                                                  options_.tied ? 1 : head.vocabulary, false));
  // Files with another head untie it.
  if (options_.tied) lm_head_->tie(stacks_.shared->weight);
}

ModelOutput ConditionalGenerator::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto labels = found_or_undefined(inputs, "labels");
  const auto body = run(inputs, options, labels);
  const auto hidden = scaled(body.decoder.last_hidden_state);
  const auto logits = options.need_logits || !labels.defined() ? logits_of(hidden) : Tensor();
  ModelOutput output;
  if (labels.defined())
    output.set("loss",
               lm_head_loss(*lm_head_, hidden, logits, labels, std::nullopt, final_logits_bias_));
  if (logits.defined()) output.set("logits", logits);
  return with_stack_extras(std::move(output), body);
}

Tensor ConditionalGenerator::encode(const Batch& inputs) {
  auto given = backbone_inputs(inputs);
  given.sequence_ids = Tensor();
  return stacks_.encoder->forward(given).last_hidden_state;
}

Tensor ConditionalGenerator::decode(const Batch& inputs, layers::KeyValueCache& cache) {
  BackboneInputs given;
  given.input_ids = inputs["decoder_input_ids"];
  given.attention_mask = found_or_undefined(inputs, "decoder_attention_mask");
  given.encoder_hidden_states = inputs["encoder_hidden_states"];
  given.encoder_attention_mask = found_or_undefined(inputs, "attention_mask");
  given.cache = &cache;
  const auto hidden = stacks_.decoder->forward(given).last_hidden_state;
  return logits_of(scaled(hidden.select(1, hidden.size(1) - 1)));
}

void ConditionalGenerator::resize_token_embeddings(int64_t count) {
  EncoderDecoderModel::resize_token_embeddings(count);
  if (!final_logits_bias_.defined() || final_logits_bias_.size(1) == count) return;
  const torch::NoGradGuard no_grad;
  final_logits_bias_.set_data(
      at::constant_pad_nd(final_logits_bias_, {0, count - final_logits_bias_.size(1)}));
}

std::vector<Tensor> ConditionalGenerator::vocabulary_parameters() {
  auto tensors = EncoderDecoderModel::vocabulary_parameters();
  tensors.push_back(lm_head_->weight);
  return tensors;
}

Tensor ConditionalGenerator::scaled(const Tensor& hidden) const {
  return head_options_.scale == 1.0 ? hidden : hidden * head_options_.scale;
}

Tensor ConditionalGenerator::logits_of(const Tensor& hidden) const {
  const auto logits = lm_head_->forward(hidden);
  return final_logits_bias_.defined() ? logits + final_logits_bias_ : logits;
}

ClassificationHead::ClassificationHead(int64_t width, int64_t classes, double dropout)
    : dropout_(dropout) {
  dense = register_module("dense", std::make_shared<layers::Linear>(width, width));
  out_proj = register_module("out_proj", std::make_shared<layers::Linear>(width, classes));
}

Tensor ClassificationHead::forward(const Tensor& x) const {
  const auto inner = dense->forward(layers::dropout(x, dropout_, is_training())).tanh();
  return out_proj->forward(layers::dropout(inner, dropout_, is_training()));
}

EncoderDecoderClassifier::EncoderDecoderClassifier(nlohmann::json config,
                                                   EncoderDecoderOptions options, Stacks stacks,
                                                   double dropout)
    : EncoderDecoderModel(std::move(config), std::move(options), std::move(stacks)) {
  head_ = register_module("classification_head",
                          std::make_shared<ClassificationHead>(stacks_.decoder->hidden_size(),
                                                               num_labels(config_), dropout));
  problem_type_ = problem_type_in(config_);
}

ModelOutput EncoderDecoderClassifier::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto ids = found_or_undefined(inputs, "input_ids");
  if (!ids.defined())
    throw Error("G-MODEL-11", ErrorKind::model,
                fmt::format("{} finds the end of the text by input_ids; the batch holds none",
                            class_name()),
                "Give input_ids.");
  const auto body = run(inputs, options, ids);
  const auto& hidden = body.decoder.last_hidden_state;
  const auto rows =
      at::arange(ids.size(0), torch::TensorOptions().dtype(torch::kLong).device(hidden.device()));
  const auto logits = head_->forward(hidden.index({rows, last_ends(ids)}));
  ModelOutput output;
  if (const auto* labels = inputs.find("labels")) {
    if (!problem_type_)
      problem_type_ = config_["problem_type"] = problem_type_of(logits.size(-1), *labels);
    output.set("loss", sequence_classification_loss(logits, *labels, problem_type_));
  }
  output.set("logits", logits);
  return with_stack_extras(std::move(output), body);
}

Tensor EncoderDecoderClassifier::last_ends(const Tensor& ids) const {
  const auto* end = ConfigReader(config_).find("eos_token_id");
  const auto id = end == nullptr                     ? int64_t{-1}
                  : end->is_array() && !end->empty() ? (*end)[0].get<int64_t>()
                  : end->is_number_integer()         ? end->get<int64_t>()
                                                     : -1;
  const auto ends = ids.eq(id);
  if (ends.is_cpu()) {
    const auto [fewest, most] = ends.sum(1).aminmax();
    if (fewest.item<int64_t>() != most.item<int64_t>() || fewest.item<int64_t>() == 0)
      throw Error("G-MODEL-31", ErrorKind::model,
                  fmt::format("{} needs the same number of end tokens (id {}) in every row, at "
                              "least one; the batch has from {} to {}",
                              class_name(), id, fewest.item<int64_t>(), most.item<int64_t>()),
                  "Let the tokenizer add the end token (add_special_tokens), and check "
                  "whether the text itself contains it.");
  }
  return (at::arange(1, ids.size(1) + 1, ids.options()) * ends).argmax(-1);
}

EncoderDecoderSpans::EncoderDecoderSpans(nlohmann::json config, EncoderDecoderOptions options,
                                         Stacks stacks)
    : EncoderDecoderModel(std::move(config), std::move(options), std::move(stacks)) {
  qa_outputs_ = register_module(
      "qa_outputs", std::make_shared<layers::Linear>(stacks_.decoder->hidden_size(), 2));
}

ModelOutput EncoderDecoderSpans::forward(const Batch& inputs, const ForwardOptions& options) {
  const auto body = run(inputs, options, found_or_undefined(inputs, "input_ids"));
  const auto logits = qa_outputs_->forward(body.decoder.last_hidden_state);
  const auto start = logits.select(-1, 0).contiguous(), end = logits.select(-1, 1).contiguous();
  ModelOutput output;
  const auto *starts = inputs.find("start_positions"), *ends = inputs.find("end_positions");
  if (starts != nullptr && ends != nullptr)
    output.set("loss", span_loss(start, end, *starts, *ends));
  output.set("start_logits", start);
  output.set("end_logits", end);
  return with_stack_extras(std::move(output), body);
}

}  // namespace gradus
