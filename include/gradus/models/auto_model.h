#pragma once

#include <gradus/models/pretrained_model.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// What a model is for; together with `model_type` of config.json it decides which class is made.
enum class ModelTask {
  base,
  causal_lm,
  masked_lm,
  sequence_classification,
  token_classification,
  question_answering,
  seq2seq_lm,
  text_encoding
};

/// "causal language modeling": for messages.
std::string task_name(ModelTask task);

/// Makes a model without values from a config.json.
using ModelFactory = std::function<std::shared_ptr<PreTrainedModel>(const nlohmann::json& config)>;

/// Adds (or replaces) an architecture. Thread-safe.
void register_model(const std::string& model_type, ModelTask task, ModelFactory factory);

/// The model types there are for a task, sorted.
std::vector<std::string> known_model_types(ModelTask task);

/// A model with fresh values. Throws `Error` G-MODEL-6 for a model_type that is unknown or has no
/// such head (with those that have one), G-MODEL-5 for a bad value.
std::shared_ptr<PreTrainedModel> model_from_config(ModelTask task, const nlohmann::json& config);

/// The model of a Hugging Face folder, in evaluation mode as in transformers.
std::shared_ptr<PreTrainedModel> model_from_pretrained(ModelTask task,
                                                       const std::filesystem::path& directory,
                                                       const PretrainedOptions& options = {});

/// transformers' Auto classes.
template <ModelTask task>
struct AutoModelFor {
  static std::shared_ptr<PreTrainedModel> from_config(const nlohmann::json& config) {
    return model_from_config(task, config);
  }
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& directory,
                                                          const PretrainedOptions& options = {}) {
    return model_from_pretrained(task, directory, options);
  }
  static void register_model(const std::string& model_type, ModelFactory factory) {
    gradus::register_model(model_type, task, std::move(factory));
  }
};

using AutoModel = AutoModelFor<ModelTask::base>;
using AutoModelForCausalLM = AutoModelFor<ModelTask::causal_lm>;
using AutoModelForMaskedLM = AutoModelFor<ModelTask::masked_lm>;
/// A reward model is one with `num_labels` 1.
using AutoModelForSequenceClassification = AutoModelFor<ModelTask::sequence_classification>;
using AutoModelForTokenClassification = AutoModelFor<ModelTask::token_classification>;
using AutoModelForQuestionAnswering = AutoModelFor<ModelTask::question_answering>;
using AutoModelForSeq2SeqLM = AutoModelFor<ModelTask::seq2seq_lm>;
/// The encoder of an encoder-decoder model alone.
using AutoModelForTextEncoding = AutoModelFor<ModelTask::text_encoding>;

}  // namespace gradus
