#include "models/t5/t5.h"

#include <gradus/models/heads.h>

#include <cmath>

#include "models/bert/bert_config.h"
#include "models/encoder_decoder.h"
#include "models/t5/t5_stack.h"

namespace gradus {

using torch::Tensor;

namespace {

Stacks t5_stacks(const T5Config& config, bool with_decoder = true) {
  return {std::make_shared<layers::Embedding>(config.vocabulary, config.width),
          std::make_shared<T5Stack>(config, false),
          with_decoder ? std::make_shared<T5Stack>(config, true) : nullptr};
}

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

bool init_t5(torch::nn::Module& module, const Initializer& initializer,
             const nlohmann::json& config) {
  const T5Config values(config);
  if (init_t5_module(module, initializer, values)) return true;
  const auto* model = dynamic_cast<EncoderDecoderModel*>(&module);
  if (model == nullptr) return false;
  const auto by_width = values.init_factor / std::sqrt(static_cast<double>(values.width));
  initializer.normal(model->stacks().shared->weight, values.init_factor);
  if (const auto* generator = dynamic_cast<const ConditionalGenerator*>(model))
    initializer.normal(generator->head().weight, values.init_factor);
  if (const auto* spans = dynamic_cast<const EncoderDecoderSpans*>(model))
    initializer.normal(spans->head().weight, by_width);
  if (const auto* classifier = dynamic_cast<const EncoderDecoderClassifier*>(model)) {
    initializer.normal(classifier->head().dense->weight, by_width);
    initializer.normal(classifier->head().out_proj->weight, by_width);
  }
  return true;
}

EncoderDecoderOptions t5_options(const nlohmann::json& config, const char* suffix) {
  static const WeightTable table = {
      {}, {"*decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}};
  EncoderDecoderOptions options;
  options.class_name = t5_class(config, suffix);
  options.base_prefix = "transformer";
  options.shift = shifted_after_start;
  options.init = init_t5;
  options.table = &table;
  return options;
}

/// The encoder as a body: for itself, and under the token classifier.
class T5Encoder : public Backbone {
 public:
  explicit T5Encoder(const T5Config& config) : parts(t5_stacks(config, false)) {
    parts.register_in(*this, true);
  }
  layers::Embedding& input_embeddings() override { return *parts.shared; }
  int64_t hidden_size() const override { return parts.encoder->hidden_size(); }
  BackboneOutput forward(const BackboneInputs& inputs) override {
    parts.encoder->gradient_checkpointing = gradient_checkpointing;
    parts.encoder->embedding_noise = is_resized_ ? embedding_noise : std::nullopt;
    if (embedding_noise && !is_resized_) warn_of_no_noise();
    auto given = inputs;
    given.sequence_ids = Tensor();
    return parts.encoder->forward(given);
  }
  void tokens_resized() override { is_resized_ = true; }
  Stacks parts;

 private:
  bool is_resized_ = false;  // see EncoderDecoderModel
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

std::shared_ptr<PreTrainedModel> make_t5(const nlohmann::json& config) {
  return std::make_shared<EncoderDecoderModel>(
      t5_with_defaults(config), t5_options(config, "Model"), t5_stacks(T5Config(config)));
}

std::shared_ptr<PreTrainedModel> make_t5_generator(const nlohmann::json& config) {
  const T5Config values(config);
  GenerationHeadOptions head{values.vocabulary};
  if (values.scale_outputs) head.scale = std::pow(static_cast<double>(values.width), -0.5);
  return std::make_shared<ConditionalGenerator>(t5_with_defaults(config),
                                                t5_options(config, "ForConditionalGeneration"),
                                                t5_stacks(values), head);
}

std::shared_ptr<PreTrainedModel> make_t5_classifier(const nlohmann::json& config) {
  const T5Config values(config);
  auto options = t5_options(config, "ForSequenceClassification");
  options.prefix = "transformer";
  return std::make_shared<EncoderDecoderClassifier>(t5_with_defaults(config), options,
                                                    t5_stacks(values), values.classifier_dropout);
}

std::shared_ptr<PreTrainedModel> make_t5_spans(const nlohmann::json& config) {
  check_span_labels(config);
  return std::make_shared<EncoderDecoderSpans>(t5_with_defaults(config),
                                               t5_options(config, "ForQuestionAnswering"),
                                               t5_stacks(T5Config(config)));
}

}  // namespace

std::vector<BuiltinModel> t5_models() {
  std::vector<BuiltinModel> models;
  for (const auto* type : {"t5", "mt5"}) {
    models.push_back({type, ModelTask::base, make_t5});
    models.push_back({type, ModelTask::seq2seq_lm, make_t5_generator});
    models.push_back({type, ModelTask::sequence_classification, make_t5_classifier});
    models.push_back({type, ModelTask::question_answering, make_t5_spans});
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
