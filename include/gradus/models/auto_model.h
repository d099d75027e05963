#pragma once

#include <gradus/models/pretrained_model.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// What a model is for. Together with `model_type` of config.json it selects the class.
enum class ModelTask {
  base,                     ///< The body without a head.
  causal_lm,                ///< Predicts the next token.
  masked_lm,                ///< Predicts masked tokens.
  sequence_classification,  ///< One label per text; with `num_labels` 1 a score.
  token_classification,     ///< One label per token.
  question_answering,       ///< Start and end of an answer in the text.
  seq2seq_lm,               ///< Encoder and decoder: text to text.
  text_encoding,            ///< The encoder of an encoder-decoder model.
  image_classification,     ///< One label per image.
  ctc,                      ///< Speech to text: scores of characters for every frame.
  audio_pretraining         ///< wav2vec 2.0: tells masked frames from others.
};

/// A task in words for messages, for example "causal language modeling".
std::string task_name(ModelTask task);

/// Builds a model from the content of a config.json. Its parameters have no values yet.
using ModelFactory = std::function<std::shared_ptr<PreTrainedModel>(const nlohmann::json& config)>;

/// Adds an architecture for a task. From then on the Auto classes, the tasks and the errors that
/// list model types know it. docs/dev/new-model.md shows how.
///
/// Call it before the first model is made, from main() or while static objects are set up.
/// Thread-safe. Throws `Error` G-REG-1 for a model type that has a head for this task already,
/// G-REG-2 for an empty name or no factory.
void register_model(const std::string& model_type, ModelTask task, ModelFactory factory);

/// What a model type starts from when there is no config.json (`--model_type`).
struct ModelDefaults {
  std::string model_type;  ///< As in config.json.
  nlohmann::json config;   ///< Every key with its default.
  /// Names of keys that other types share, and what this type calls them: {"hidden_size",
  /// "n_embd"}. `--config_overrides` takes both.
  std::map<std::string, std::string> aliases = {};
};

/// Adds the defaults of a model type. Throws and may be called as `register_model`.
void register_model_defaults(ModelDefaults defaults);
/// The defaults of a model type; unset for one that has none.
std::optional<ModelDefaults> model_defaults(const std::string& model_type);
/// The model types that have defaults, sorted.
std::vector<std::string> model_types_with_defaults();

/// The `model_type`s registered for a task, sorted.
std::vector<std::string> known_model_types(ModelTask task);

/// Builds a model with newly initialised parameters. Throws `Error` G-MODEL-6 for a `model_type`
/// that is unknown or has no such head, with those that have one, and G-MODEL-5 for a bad value.
std::shared_ptr<PreTrainedModel> model_from_config(ModelTask task, const nlohmann::json& config);

/// Loads a model from a Hugging Face folder, in evaluation mode as transformers does. Throws what
/// `model_from_config` and `PreTrainedModel::load_weights` throw.
std::shared_ptr<PreTrainedModel> model_from_pretrained(ModelTask task,
                                                       const std::filesystem::path& directory,
                                                       const PretrainedOptions& options = {});

/// Loads the model that the adapter in the folder `adapter` belongs to from the folder `base`, with
/// as many labels and tokens as the adapter was trained with. Labels that `options.config` names go
/// first. Throws what `model_from_pretrained` throws.
std::shared_ptr<PreTrainedModel> base_for_adapter(ModelTask task, const std::filesystem::path& base,
                                                  const std::filesystem::path& adapter,
                                                  PretrainedOptions options = {});

/// A second model with the same config and weights, of the same type and on the same device. It
/// draws no random numbers. Throws `Error` G-MODEL-6 for a model that the table of models does not
/// make for `task`.
std::shared_ptr<PreTrainedModel> copy_of_model(ModelTask task, const PreTrainedModel& model);

/// The Auto classes of transformers, one for each task. All functions are static.
template <ModelTask task>
struct AutoModelFor {
  /// See `model_from_config`.
  static std::shared_ptr<PreTrainedModel> from_config(const nlohmann::json& config) {
    return model_from_config(task, config);
  }
  /// See `model_from_pretrained`.
  static std::shared_ptr<PreTrainedModel> from_pretrained(const std::filesystem::path& directory,
                                                          const PretrainedOptions& options = {}) {
    return model_from_pretrained(task, directory, options);
  }
  /// See `gradus::register_model`.
  static void register_model(const std::string& model_type, ModelFactory factory) {
    gradus::register_model(model_type, task, std::move(factory));
  }
};

/// Loads the body of a model, without a head.
using AutoModel = AutoModelFor<ModelTask::base>;
/// Loads a causal language model.
using AutoModelForCausalLM = AutoModelFor<ModelTask::causal_lm>;
/// Loads a masked language model.
using AutoModelForMaskedLM = AutoModelFor<ModelTask::masked_lm>;
/// Loads a text classifier. With `num_labels` 1 it is a reward or regression model.
using AutoModelForSequenceClassification = AutoModelFor<ModelTask::sequence_classification>;
/// Loads a model that labels every token.
using AutoModelForTokenClassification = AutoModelFor<ModelTask::token_classification>;
/// Loads a model that finds an answer in a text.
using AutoModelForQuestionAnswering = AutoModelFor<ModelTask::question_answering>;
/// Loads an encoder-decoder model.
using AutoModelForSeq2SeqLM = AutoModelFor<ModelTask::seq2seq_lm>;
/// Loads only the encoder of an encoder-decoder model.
using AutoModelForTextEncoding = AutoModelFor<ModelTask::text_encoding>;
/// Loads an image classifier.
using AutoModelForImageClassification = AutoModelFor<ModelTask::image_classification>;
/// Loads a model that writes down speech, trained with the CTC loss.
using AutoModelForCTC = AutoModelFor<ModelTask::ctc>;
/// Loads a speech model with the head of its pre-training.
using AutoModelForAudioPreTraining = AutoModelFor<ModelTask::audio_pretraining>;

}  // namespace gradus
