#include "models/t5/t5.h"

#include <gradus/core/error.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/heads.h>
#include <gradus/models/losses.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <cmath>

#include "models/t5/t5_stack.h"

namespace gradus {

using torch::Tensor;

namespace {

/// The stacks with their common table, registered under transformers' names in the module that owns
/// them.
struct T5Parts {
  T5Parts(torch::nn::Module& owner, const T5Config& config, bool with_decoder) {
    shared = owner.register_module(
        "shared", std::make_shared<layers::Embedding>(config.vocabulary, config.width));
    encoder = owner.register_module("encoder", std::make_shared<T5Stack>(config, false));
    encoder->input_embeddings().tie(shared->weight);
    if (!with_decoder) return;
    decoder = owner.register_module("decoder", std::make_shared<T5Stack>(config, true));
    decoder->input_embeddings().tie(shared->weight);
  }
  std::shared_ptr<layers::Embedding> shared;
  std::shared_ptr<T5Stack> encoder, decoder;
};

bool is_multilingual(const nlohmann::json& config) {
  return config.value("model_type", nlohmann::json()) == "mt5";
}

/// transformers' name of a class: T5 or MT5 and what it is for.
std::string t5_class(const nlohmann::json& config, const char* suffix) {
  return (is_multilingual(config) ? "MT5" : "T5") + std::string(suffix);
}

nlohmann::json t5_with_defaults(nlohmann::json config, bool encoder_only = false) {
  if (is_multilingual(config) && !config.contains("decoder_start_token_id"))
    config["decoder_start_token_id"] = 0;
  const std::pair<const char*, nlohmann::json> defaults[] = {
      {"is_encoder_decoder", true}, {"pad_token_id", 0}, {"eos_token_id", 1}};
  for (const auto& [name, value] : defaults)
    if (!config.contains(name)) config[name] = value;
  if (encoder_only) config["is_encoder_decoder"] = config["use_cache"] = false;
  return config;
}

Tensor find_or_undefined(const Batch& inputs, const char* name) {
  const auto* found = inputs.find(name);
  return found == nullptr ? Tensor() : *found;
}

/// What encoder and decoder gave.
struct T5Output {
  Tensor encoder_last_hidden_state;
  BackboneOutput encoder, decoder;
};

void set_all(ModelOutput& output, const char* name, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) output.set(fmt::format("{}.{}", name, i), tensors[i]);
}

ModelOutput with_t5_extras(ModelOutput output, const T5Output& body) {
  set_all(output, "decoder_hidden_states", body.decoder.hidden_states);
  set_all(output, "decoder_attentions", body.decoder.attentions);
  set_all(output, "cross_attentions", body.decoder.cross_attentions);
  output.set("encoder_last_hidden_state", body.encoder_last_hidden_state);
  set_all(output, "encoder_hidden_states", body.encoder.hidden_states);
  set_all(output, "encoder_attentions", body.encoder.attentions);
  return output;
}

/// The common part of the models with encoder and decoder.
class T5Seq2Seq : public PreTrainedModel {
 public:
  std::vector<std::string> input_names() const override {
    std::vector<std::string> names = {"input_ids",         "attention_mask",
                                      "decoder_input_ids", "decoder_attention_mask",
                                      "inputs_embeds",     "decoder_inputs_embeds"};
    for (auto& label : label_names()) names.push_back(label);
    return names;
  }
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override {
    parts().encoder->gradient_checkpointing = parts().decoder->gradient_checkpointing = how;
  }
  void set_embedding_noise(std::optional<double> alpha) override {
    parts().encoder->embedding_noise = parts().decoder->embedding_noise = alpha;
  }
  torch::nn::Module* input_embedding_module() override { return parts().shared.get(); }
  /// `attention_shape` stays unanswered: T5 adds a bias to the scores, which is not measured.
  std::vector<std::string> droppable_masks() const override {
    return {"attention_mask", "decoder_attention_mask"};
  }
  bool is_encoder_decoder() const override { return true; }

  Tensor prepare_decoder_input_ids_from_labels(const Tensor& labels) const override {
    const ConfigReader read(config_);
    const auto start = read.optional_integer("decoder_start_token_id", 0),
               pad = read.optional_integer("pad_token_id", 0);
    if (!start || !pad)
      throw Error(
          "G-MODEL-30", ErrorKind::model,
          fmt::format("{} makes decoder_input_ids from the labels, but config.json has no {}",
                      class_name(), start ? "pad_token_id" : "decoder_start_token_id"),
          "Set it in config.json (T5 uses the pad token, 0, for both), or give decoder_input_ids.");
    const auto first = torch::full_like(labels.narrow(-1, 0, 1), *start);
    const auto shifted = at::cat({first, labels.narrow(-1, 0, labels.size(-1) - 1)}, -1);
    return shifted.masked_fill(shifted.eq(-100), *pad);
  }

 protected:
  T5Seq2Seq(const nlohmann::json& config, const char* suffix)
      : PreTrainedModel(t5_with_defaults(config), t5_class(config, suffix), "transformer"),
        settings_(config_) {}

  virtual T5Parts& parts() = 0;

  /// Runs both stacks; the decoder's tokens come from the batch or, when it has none, from
  /// `shifted_from`.
  T5Output run(const Batch& inputs, const ForwardOptions& options, const Tensor& shifted_from) {
    T5Output output;
    auto decoder = decoder_inputs(inputs, shifted_from);
    output.encoder_last_hidden_state = find_or_undefined(inputs, "encoder_hidden_states");
    if (!output.encoder_last_hidden_state.defined()) {
      auto given = backbone_inputs(inputs, options);
      given.sequence_ids = Tensor();
      output.encoder = parts().encoder->forward(given);
      output.encoder_last_hidden_state = output.encoder.last_hidden_state;
    }
    decoder.encoder_hidden_states = output.encoder_last_hidden_state;
    decoder.encoder_attention_mask =
        needed_mask(inputs, "attention_mask", output.encoder_last_hidden_state.size(0),
                    output.encoder_last_hidden_state.size(1));
    decoder.output_attentions = options.output_attentions;
    decoder.output_hidden_states = options.output_hidden_states;
    output.decoder = parts().decoder->forward(decoder);
    return output;
  }

  void init_module(torch::nn::Module& module, const Initializer& initializer) const override {
    if (init_t5_module(module, initializer, settings_)) return;
    PreTrainedModel::init_module(module, initializer);
    if (&module == static_cast<const torch::nn::Module*>(this))
      initializer.normal(const_cast<T5Seq2Seq*>(this)->parts().shared->weight,
                         settings_.init_factor);
  }

  const WeightTable& weight_table() const override {
    static const WeightTable table = {
        {}, {"*decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}};
    return table;
  }

  double init_by_width() const {
    return settings_.init_factor / std::sqrt(static_cast<double>(settings_.width));
  }

  T5Config settings_;

 private:
  BackboneInputs decoder_inputs(const Batch& inputs, const Tensor& shifted_from) const {
    BackboneInputs decoder;
    decoder.input_ids = find_or_undefined(inputs, "decoder_input_ids");
    decoder.inputs_embeds = find_or_undefined(inputs, "decoder_inputs_embeds");
    if (!decoder.input_ids.defined() && !decoder.inputs_embeds.defined() && shifted_from.defined())
      decoder.input_ids = prepare_decoder_input_ids_from_labels(shifted_from);
    if (decoder.input_ids.defined() == decoder.inputs_embeds.defined())
      throw Error(
          "G-MODEL-11", ErrorKind::model,
          fmt::format(
              "{} takes either decoder_input_ids or decoder_inputs_embeds; the batch holds {}",
              class_name(), decoder.input_ids.defined() ? "both" : "neither"),
          "Give labels, from which the language model makes decoder_input_ids, or one of the two.");
    decoder.attention_mask =
        needed_mask(inputs, "decoder_attention_mask", decoder.rows(), decoder.tokens());
    return decoder;
  }
};

/// Encoder and decoder: `last_hidden_state` is the decoder's.
class T5Model : public T5Seq2Seq {
 public:
  explicit T5Model(const nlohmann::json& config)
      : T5Seq2Seq(config, "Model"), parts_(*this, settings_, true) {}
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto body = run(inputs, options, {});
    return with_t5_extras({{"last_hidden_state", body.decoder.last_hidden_state}}, body);
  }
  std::vector<std::string> label_names() const override { return {}; }

 protected:
  T5Parts& parts() override { return parts_; }

 private:
  T5Parts parts_;
};

class T5ForConditionalGeneration : public T5Seq2Seq {
 public:
  explicit T5ForConditionalGeneration(const nlohmann::json& config)
      : T5Seq2Seq(config, "ForConditionalGeneration"), parts_(*this, settings_, true) {
    lm_head_ =
        register_module("lm_head", std::make_shared<layers::Linear>(settings_.width, 1, false));
    lm_head_->tie(
        parts_.shared
            ->weight);  // in any case, as in transformers; files with another head untie it
  }

  /// The mean over the labels; `num_items_in_batch` is not used, as in transformers.
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto labels = find_or_undefined(inputs, "labels");
    const auto body = run(inputs, options, labels);
    const auto hidden = scaled(body.decoder.last_hidden_state);
    const auto logits =
        options.need_logits || !labels.defined() ? lm_head_->forward(hidden) : Tensor();
    ModelOutput output;
    if (labels.defined())
      output.set("loss", lm_head_loss(*lm_head_, hidden, logits, labels, std::nullopt));
    if (logits.defined()) output.set("logits", logits);
    return with_t5_extras(std::move(output), body);
  }

  bool can_generate() const override { return true; }

  Tensor encode(const Batch& inputs) override {
    auto given = backbone_inputs(inputs);
    given.sequence_ids = Tensor();
    return parts_.encoder->forward(given).last_hidden_state;
  }

  Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override {
    BackboneInputs given;
    given.input_ids = inputs["decoder_input_ids"];
    given.attention_mask = find_or_undefined(inputs, "decoder_attention_mask");
    given.encoder_hidden_states = inputs["encoder_hidden_states"];
    given.encoder_attention_mask = find_or_undefined(inputs, "attention_mask");
    given.cache = &cache;
    const auto hidden = parts_.decoder->forward(given).last_hidden_state;
    return lm_head_->forward(scaled(hidden.select(1, hidden.size(1) - 1)));
  }

 protected:
  T5Parts& parts() override { return parts_; }
  std::vector<Tensor> vocabulary_parameters() override { return {lm_head_->weight}; }
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override {
    T5Seq2Seq::init_module(module, initializer);
    if (&module == static_cast<const torch::nn::Module*>(this))
      initializer.normal(lm_head_->weight, settings_.init_factor);
  }

 private:
  Tensor scaled(const Tensor& hidden) const {
    return settings_.scale_outputs ? hidden * std::pow(static_cast<double>(settings_.width), -0.5)
                                   : hidden;
  }

  T5Parts parts_;
  std::shared_ptr<layers::Linear> lm_head_;
};

/// The head of the sequence classifier.
class T5ClassificationHead : public torch::nn::Module {
 public:
  T5ClassificationHead(const T5Config& config, int64_t classes)
      : dropout_(config.classifier_dropout) {
    dense = register_module("dense", std::make_shared<layers::Linear>(config.width, config.width));
    out_proj = register_module("out_proj", std::make_shared<layers::Linear>(config.width, classes));
  }
  Tensor forward(const Tensor& x) const {
    const auto inner = dense->forward(layers::dropout(x, dropout_, is_training())).tanh();
    return out_proj->forward(layers::dropout(inner, dropout_, is_training()));
  }

  std::shared_ptr<layers::Linear> dense, out_proj;

 private:
  double dropout_;
};

/// The stacks as a module of their own: "transformer" of the sequence classifier.
class T5Body : public torch::nn::Module {
 public:
  explicit T5Body(const T5Config& config) : parts(*this, config, true) {}
  T5Parts parts;
};

/// A score per class from the decoder's output at the last end token of the input, which the
/// decoder reads too.
class T5ForSequenceClassification : public T5Seq2Seq {
 public:
  explicit T5ForSequenceClassification(const nlohmann::json& config)
      : T5Seq2Seq(config, "ForSequenceClassification") {
    transformer_ = register_module("transformer", std::make_shared<T5Body>(settings_));
    head_ = register_module("classification_head",
                            std::make_shared<T5ClassificationHead>(settings_, num_labels(config_)));
    problem_type_ = problem_type_in(config_);
  }

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto ids = find_or_undefined(inputs, "input_ids");
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
    return with_t5_extras(std::move(output), body);
  }

 protected:
  T5Parts& parts() override { return transformer_->parts; }
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override {
    T5Seq2Seq::init_module(module, initializer);
    if (&module != head_.get()) return;
    initializer.normal(head_->dense->weight, init_by_width());
    initializer.normal(head_->out_proj->weight, init_by_width());
  }

 private:
  Tensor last_ends(const Tensor& ids) const {
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

  std::shared_ptr<T5Body> transformer_;
  std::shared_ptr<T5ClassificationHead> head_;
  std::optional<std::string> problem_type_;
};

/// Start and end of an answer in the decoder's output; the decoder reads the shifted input.
class T5ForQuestionAnswering : public T5Seq2Seq {
 public:
  explicit T5ForQuestionAnswering(const nlohmann::json& config)
      : T5Seq2Seq(config, "ForQuestionAnswering"), parts_(*this, settings_, true) {
    if (num_labels(config_) != 2)
      ConfigReader(config_).fail("num_labels", "2 for question answering: start and end",
                                 std::to_string(num_labels(config_)));
    qa_outputs_ =
        register_module("qa_outputs", std::make_shared<layers::Linear>(settings_.width, 2));
  }

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    const auto body = run(inputs, options, find_or_undefined(inputs, "input_ids"));
    const auto logits = qa_outputs_->forward(body.decoder.last_hidden_state);
    const auto start = logits.select(-1, 0).contiguous(), end = logits.select(-1, 1).contiguous();
    ModelOutput output;
    const auto *starts = inputs.find("start_positions"), *ends = inputs.find("end_positions");
    if (starts != nullptr && ends != nullptr)
      output.set("loss", span_loss(start, end, *starts, *ends));
    output.set("start_logits", start);
    output.set("end_logits", end);
    return with_t5_extras(std::move(output), body);
  }
  std::vector<std::string> label_names() const override {
    return {"start_positions", "end_positions"};
  }

 protected:
  T5Parts& parts() override { return parts_; }
  void init_module(torch::nn::Module& module, const Initializer& initializer) const override {
    T5Seq2Seq::init_module(module, initializer);
    if (&module == static_cast<const torch::nn::Module*>(this))
      initializer.normal(qa_outputs_->weight, init_by_width());
  }

 private:
  T5Parts parts_;
  std::shared_ptr<layers::Linear> qa_outputs_;
};

/// The encoder as a body: for itself, and under the token classifier.
class T5Encoder : public Backbone {
 public:
  explicit T5Encoder(const T5Config& config) : parts(*this, config, false) {}
  layers::Embedding& input_embeddings() override { return *parts.shared; }
  int64_t hidden_size() const override { return parts.encoder->hidden_size(); }
  BackboneOutput forward(const BackboneInputs& inputs) override {
    parts.encoder->gradient_checkpointing = gradient_checkpointing;
    parts.encoder->embedding_noise = embedding_noise;
    auto given = inputs;
    given.sequence_ids = Tensor();
    return parts.encoder->forward(given);
  }
  T5Parts parts;
};

bool init_t5_encoder(torch::nn::Module& module, const Initializer& initializer,
                     const nlohmann::json& config) {
  const T5Config values(config);
  if (const auto* encoder = dynamic_cast<T5Encoder*>(&module)) {
    initializer.normal(encoder->parts.shared->weight, values.init_factor);
    return true;
  }
  if (auto* classifier = dynamic_cast<TokenClassifier*>(&module)) {
    initializer.normal(classifier->named_parameters()["classifier.weight"], values.init_factor);
    return true;
  }
  return init_t5_module(module, initializer, values);
}

HeadOptions t5_encoder_options(const std::string& class_name) {
  static const WeightTable table = {{}, {"*decoder*"}};
  HeadOptions options;
  options.class_name = class_name;
  options.prefix = "transformer";
  options.head = "classifier";
  options.input_names = {"input_ids", "attention_mask", "inputs_embeds"};
  options.table = &table;
  options.init = init_t5_encoder;
  return options;
}

template <class M>
std::shared_ptr<PreTrainedModel> make_t5(const nlohmann::json& config) {
  return std::make_shared<M>(config);
}

}  // namespace

std::vector<BuiltinModel> t5_models() {
  std::vector<BuiltinModel> models;
  for (const auto* type : {"t5", "mt5"}) {
    models.push_back({type, ModelTask::base, make_t5<T5Model>});
    models.push_back({type, ModelTask::seq2seq_lm, make_t5<T5ForConditionalGeneration>});
    models.push_back(
        {type, ModelTask::sequence_classification, make_t5<T5ForSequenceClassification>});
    models.push_back({type, ModelTask::question_answering, make_t5<T5ForQuestionAnswering>});
    models.push_back({type, ModelTask::text_encoding, [](const auto& config) {
                        return std::make_shared<BaseModel>(
                            t5_with_defaults(config, true),
                            t5_encoder_options(t5_class(config, "EncoderModel")),
                            std::make_shared<T5Encoder>(T5Config(config)));
                      }});
    models.push_back({type, ModelTask::token_classification, [](const auto& config) {
                        const T5Config values(config);
                        return std::make_shared<TokenClassifier>(
                            t5_with_defaults(config, true),
                            t5_encoder_options(t5_class(config, "ForTokenClassification")),
                            std::make_shared<T5Encoder>(values), values.classifier_dropout);
                      }});
  }
  return models;
}

}  // namespace gradus
