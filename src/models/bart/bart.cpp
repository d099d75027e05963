#include "models/bart/bart.h"

#include <gradus/models/config_reader.h>
#include <gradus/models/heads.h>

#include <ATen/ops/cat.h>

#include "models/bart/bart_stack.h"
#include "models/encoder_decoder.h"

namespace gradus {

using torch::Tensor;

namespace {

/// transformers' name of a class: Bart or MBart and what it is for.
std::string bart_class(const BartConfig& values, const char* suffix) {
  return (values.multilingual ? "MBart" : "Bart") + std::string(suffix);
}

nlohmann::json bart_with_defaults(nlohmann::json config, const BartConfig& values) {
  std::vector<std::pair<const char*, nlohmann::json>> defaults = {
      {"is_encoder_decoder", true}, {"pad_token_id", 1},        {"bos_token_id", 0},
      {"eos_token_id", 2},          {"forced_eos_token_id", 2}, {"is_decoder", false}};
  if (!values.multilingual) {
    defaults.emplace_back("decoder_start_token_id", 2);
    if (!config.contains("id2label")) defaults.emplace_back("num_labels", 3);
  }
  for (const auto& [name, value] : defaults)
    if (!config.contains(name)) config[name] = value;
  return config;
}

/// mBART starts with the last token of a row, the code of its language.
Tensor shifted_around(const Tensor& ids, const nlohmann::json& config, const std::string&) {
  const auto pad = ConfigReader(config).integer("pad_token_id", 1, 0);
  const auto filled = ids.masked_fill(ids.eq(-100), pad);
  const auto last = (filled.ne(pad).sum(1) - 1).clamp_min(0).unsqueeze(-1);
  return at::cat({filled.gather(1, last), filled.narrow(1, 0, filled.size(1) - 1)}, 1);
}

Stacks bart_stacks(const BartConfig& values) {
  return {
      std::make_shared<layers::Embedding>(values.vocabulary, values.width, values.padding_index),
      std::make_shared<BartStack>(values, false), std::make_shared<BartStack>(values, true)};
}

const WeightTable& bart_weight_table() {
  static const WeightTable table = {{},
                                    {"*encoder.version", "*decoder.version", "final_logits_bias"}};
  return table;
}

EncoderDecoderOptions bart_options(const BartConfig& values, const char* suffix) {
  EncoderDecoderOptions options;
  options.class_name = bart_class(values, suffix);
  options.base_prefix = options.prefix = "model";
  options.tied = values.tied;
  options.is_recordable = values.encoder.layerdrop == 0.0 && values.decoder.layerdrop == 0.0;
  options.decoder_reads_input = true;
  options.shift = values.multilingual ? shifted_around : shifted_after_start;
  options.table = &bart_weight_table();
  return options;
}

std::shared_ptr<PreTrainedModel> make_bart(const nlohmann::json& config) {
  const BartConfig values(config);
  auto options = bart_options(values, "Model");
  options.prefix.clear();
  return std::make_shared<EncoderDecoderModel>(bart_with_defaults(config, values), options,
                                               bart_stacks(values));
}

std::shared_ptr<PreTrainedModel> make_bart_generator(const nlohmann::json& config) {
  const BartConfig values(config);
  return std::make_shared<ConditionalGenerator>(
      bart_with_defaults(config, values), bart_options(values, "ForConditionalGeneration"),
      bart_stacks(values), GenerationHeadOptions{values.vocabulary, 1.0, true});
}

std::shared_ptr<PreTrainedModel> make_bart_classifier(const nlohmann::json& config) {
  const BartConfig values(config);
  return std::make_shared<EncoderDecoderClassifier>(
      bart_with_defaults(config, values), bart_options(values, "ForSequenceClassification"),
      bart_stacks(values), values.classifier_dropout);
}

/// Always with two labels, whatever the config says, as in transformers.
std::shared_ptr<PreTrainedModel> make_bart_spans(const nlohmann::json& given) {
  const BartConfig values(given);
  auto config = given;
  config["num_labels"] = 2;
  return std::make_shared<EncoderDecoderSpans>(bart_with_defaults(config, values),
                                               bart_options(values, "ForQuestionAnswering"),
                                               bart_stacks(values));
}

/// The decoder alone. As in transformers it does not shift its labels.
std::shared_ptr<PreTrainedModel> make_bart_decoder(const nlohmann::json& given) {
  const BartConfig values(given);
  auto config = bart_with_defaults(given, values);
  config["is_decoder"] = true;
  config["is_encoder_decoder"] = false;
  HeadOptions options;
  options.class_name = bart_class(values, "ForCausalLM");
  options.prefix = "model";
  options.body = "model.decoder";
  options.tied = values.tied;
  options.shifts_labels = false;
  options.packs_by_position_ids = false;
  options.is_recordable = values.decoder.layerdrop == 0.0;
  options.input_names = {"input_ids", "attention_mask", "inputs_embeds"};
  options.table = &bart_weight_table();
  return std::make_shared<CausalLM>(config, options, std::make_shared<BartStack>(values, true),
                                    values.vocabulary);
}

}  // namespace

std::vector<BuiltinModel> bart_models() {
  std::vector<BuiltinModel> models;
  for (const auto* type : {"bart", "mbart"}) {
    models.push_back({type, ModelTask::base, make_bart});
    models.push_back({type, ModelTask::seq2seq_lm, make_bart_generator});
    models.push_back({type, ModelTask::masked_lm, make_bart_generator});
    models.push_back({type, ModelTask::sequence_classification, make_bart_classifier});
    models.push_back({type, ModelTask::question_answering, make_bart_spans});
    models.push_back({type, ModelTask::causal_lm, make_bart_decoder});
  }
  return models;
}

}  // namespace gradus
