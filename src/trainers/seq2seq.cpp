#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>
#include <gradus/models/pretrained_model.h>
#include <gradus/trainers/seq2seq.h>

#include "train/label_smoother.h"
#include "trainers/saved_arguments.h"

namespace gradus {
namespace {

constexpr OptionRow<Seq2SeqTrainingArguments> kSeq2SeqRows[] = {
    {&Seq2SeqTrainingArguments::sortish_sampler, "sortish_sampler", Group::generation, any_value(),
     "Sort examples roughly by length. As in transformers, the trainer itself does not use it."},
    {&Seq2SeqTrainingArguments::predict_with_generate, "predict_with_generate", Group::generation,
     any_value(), "Evaluate and predict with generated text."},
    {&Seq2SeqTrainingArguments::generation_max_length, "generation_max_length", Group::generation,
     at_least(1), "Longest text to generate in evaluation; the model's own when not set."},
    {&Seq2SeqTrainingArguments::generation_num_beams, "generation_num_beams", Group::generation,
     at_least(1), "Beams in evaluation; the model's own when not set."},
    {&Seq2SeqTrainingArguments::generation_config, "generation_config", Group::generation,
     holds(Shape::dictionary_or_path).typed("str | dict | None"),
     "Generation settings: a dictionary, or the path of a file or folder with "
     "generation_config.json."},
};

PreTrainedModel& generator_of(Model& model) {
  // Only models of the library generate; a model of the user is told so.
  auto* found = dynamic_cast<PreTrainedModel*>(&model);
  if (found == nullptr || !found->can_generate())
    throw Error("G-TRAIN-19", ErrorKind::usage,
                fmt::format("predict_with_generate: {} cannot generate",
                            found != nullptr ? found->class_name() : "a model of your own"),
                "Load the folder with AutoModelForSeq2SeqLM or AutoModelForCausalLM, or leave "
                "predict_with_generate out.");
  return *found;
}

// The option `generation_config`: a file, a folder that holds one, or the dictionary itself.
GenerationConfig read_generation_config(const nlohmann::json& value) {
  auto config = GenerationConfig();
  if (value.is_string()) {
    const std::filesystem::path path = value.get<std::string>();
    config = GenerationConfig::load(
        std::filesystem::is_directory(path) ? path / "generation_config.json" : path);
  } else {
    config = GenerationConfig::from_json(value, "generation_config");
  }
  config.validate();
  return config;
}

TrainerOptions with_generation_config(const Seq2SeqTrainerOptions& options) {
  TrainerOptions plain = options;
  if (plain.model && options.args.predict_with_generate) generator_of(*plain.model);
  if (options.args.generation_config.is_null()) return plain;
  const auto config = read_generation_config(options.args.generation_config);
  if (plain.model) generator_of(*plain.model).generation_config = config;
  if (plain.model_init)
    plain.model_init = [make = std::move(plain.model_init), config](search::Trial* trial) {
      auto model = make(trial);
      if (model) generator_of(*model).generation_config = config;
      return model;
    };
  return plain;
}

// What transformers' trainer does to a model's settings once it has generated; the saved file shows
// it.
void make_explicit(GenerationConfig& config) {
  config.fill_in_defaults();
  if (config.other.contains("_from_model_config")) config.other["_from_model_config"] = false;
}

// Whether the decoder's input only repeats the labels: generating from it would mean to read the
// answer.
bool has_decoder_input_of_labels(const Batch& inputs) {
  const auto *labels = inputs.find("labels"), *decoder = inputs.find("decoder_input_ids");
  return labels != nullptr && decoder != nullptr && labels->sizes() == decoder->sizes();
}

int64_t pad_token_of(const TokenizerLike* tokenizer, const PreTrainedModel& model) {
  if (tokenizer != nullptr) {
    if (const auto pad = tokenizer->pad_token_id()) return *pad;
    if (const auto end = tokenizer->eos_token_id()) return *end;
  } else if (const auto config = model.config();
             config.contains("pad_token_id") && config["pad_token_id"].is_number_integer()) {
    return config["pad_token_id"].get<int64_t>();
  }
  throw Error(
      "G-TRAIN-20", ErrorKind::usage,
      fmt::format("generated tokens cannot be filled up to one length: {} names no pad token",
                  tokenizer != nullptr ? "the tokenizer" : "config.json"),
      "Set pad_token_id in the model's config.json, or give a tokenizer that has one as "
      "processing_class.");
}

// Options of a call, there as long as the call lasts.
class Given {
 public:
  Given(GenerationOptions& place, const GenerationOptions& options) : place_(place) {
    place_ = options;
  }
  ~Given() { place_ = {}; }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

 private:
  GenerationOptions& place_;
};

}  // namespace

std::span<const OptionRow<Seq2SeqTrainingArguments>> Seq2SeqTrainingArguments::own_options() {
  return kSeq2SeqRows;
}

Seq2SeqTrainingArguments Seq2SeqTrainingArguments::resolved() const {
  return resolve_fields(*this);
}

nlohmann::ordered_json Seq2SeqTrainingArguments::to_dict() const {
  return arguments_to_dict(*this);
}

Seq2SeqTrainingArguments Seq2SeqTrainingArguments::from_json(const nlohmann::json& dict) {
  return arguments_from_json<Seq2SeqTrainingArguments>(dict);
}

Seq2SeqTrainingArguments::operator TrainingArguments() const { return common_arguments(*this); }

bool operator==(const Seq2SeqTrainingArguments&, const Seq2SeqTrainingArguments&) = default;

std::string Seq2SeqTrainingArguments::to_json_string() const { return dump_json(to_dict(), 2); }

Seq2SeqTrainer::Seq2SeqTrainer(Seq2SeqTrainerOptions options)
    : Trainer(with_generation_config(options)),
      args_(options.args.resolved()),
      tokenizer_(std::move(options.processing_class)) {}

Metrics Seq2SeqTrainer::evaluate(EvalDatasets eval_dataset, std::optional<Names> ignore_keys,
                                 const std::string& metric_key_prefix,
                                 const GenerationOptions& generation) {
  const Given given(given_, generation);
  return evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

PredictionOutput Seq2SeqTrainer::predict(DatasetRef test_dataset, std::optional<Names> ignore_keys,
                                         const std::string& metric_key_prefix,
                                         const GenerationOptions& generation) {
  const Given given(given_, generation);
  return predict(std::move(test_dataset), std::move(ignore_keys), metric_key_prefix);
}

GenerationOptions Seq2SeqTrainer::generation_options() const {
  auto options = given_;
  if (!options.max_length && !options.max_new_tokens)
    options.max_length = args_.generation_max_length;
  if (!options.num_beams) options.num_beams = args_.generation_num_beams;
  return options;
}

PredictionStep Seq2SeqTrainer::prediction_step(Model& model, Batch inputs,
                                               bool prediction_loss_only,
                                               const Names& ignore_keys) {
  if (!args_.predict_with_generate || prediction_loss_only)
    return Trainer::prediction_step(model, std::move(inputs), prediction_loss_only, ignore_keys);
  auto& generator = generator_of(model);
  inputs = prepare_inputs(std::move(inputs));
  const torch::NoGradGuard no_grad;
  const auto precision = compute_loss_context_manager();
  auto prompt = inputs;
  if (has_decoder_input_of_labels(prompt))
    for (const char* name : {"decoder_input_ids", "decoder_attention_mask"})
      prompt.pop_or_undefined(name);
  const auto labels = prompt.pop_or_undefined("labels");
  if (labels.defined() && generator.is_encoder_decoder() && !generator.is_training()) {
    // The encoder reads the batch once, for the text and for the loss.
    const auto states = generator.encode(prompt);
    prompt.set("encoder_hidden_states", states);
    inputs.set("encoder_hidden_states", states);
  }
  const auto generated = generator.generate(prompt, generation_options());
  make_explicit(generator.generation_config);  // only now, as in transformers: a first batch may be
                                               // one token longer than the default

  PredictionStep step;
  step.logits = {filled_up(generated, generator)};
  if (!labels.defined()) return step;
  const auto outputs = run_model(model, inputs, /*training=*/false);
  const auto loss = args().label_smoothing_factor != 0
                        ? LabelSmoother(args().label_smoothing_factor)(
                              outputs, labels, model.shifts_labels(), std::nullopt)
                        : outputs["loss"];
  step.loss = loss.detach().mean();
  step.labels = {filled_up(labels, generator)};
  return step;
}

// To the length that the model's own generation_config allows, so that most batches are equally
// wide.
torch::Tensor Seq2SeqTrainer::filled_up(const torch::Tensor& ids,
                                        const PreTrainedModel& model) const {
  const auto& options = model.generation_config.options;
  int64_t width = *options.max_length;
  if (ids.size(-1) >= width) width = options.max_new_tokens ? *options.max_new_tokens + 1 : 0;
  if (ids.size(-1) >= width) return ids;
  return torch::constant_pad_nd(ids, {0, width - ids.size(-1)},
                                pad_token_of(tokenizer_.get(), model));
}

int64_t Seq2SeqTrainer::rows_of_loss(int64_t /*rows*/) const { return args().eval_batch_size(); }

StepTraits Seq2SeqTrainer::step_traits() const {
  if (is_exactly<Seq2SeqTrainer>()) return {.recordable = true, .reads_logits = false};
  return {};
}

nlohmann::ordered_json Seq2SeqTrainer::arguments_to_save() const {
  return saved_arguments(args_, Trainer::arguments_to_save());
}

}  // namespace gradus
