#include <gradus/core/error.h>
#include <gradus/device/runtime.h>
#include <gradus/models/span_masks.h>
#include <gradus/trainers/wav2vec2_pretraining.h>

#include <ATen/ops/stack.h>

#include <cmath>

#include "data/collate_random.h"
#include "trainers/saved_arguments.h"

namespace gradus {
namespace {

constexpr OptionRow<Wav2Vec2PreTrainingArguments> kPreTrainingRows[] = {
    {&Wav2Vec2PreTrainingArguments::max_gumbel_temperature, "max_gumbel_temperature",
     Group::trainer, at_least(1e-6), "Temperature of the quantizer's Gumbel softmax at first."},
    {&Wav2Vec2PreTrainingArguments::min_gumbel_temperature, "min_gumbel_temperature",
     Group::trainer, at_least(0.0), "The temperature never becomes lower."},
    {&Wav2Vec2PreTrainingArguments::gumbel_temperature_decay, "gumbel_temperature_decay",
     Group::trainer, at_least(0.0), "Factor of the temperature after each step."},
};

constexpr double kFirstTemperature = 2.0;  // the quantizer's own, until the first update

std::shared_ptr<Model> checked_speech_model(std::shared_ptr<Model> model) {
  // Only this model has a quantizer, whose temperature is set.
  if (model && dynamic_cast<Wav2Vec2ForPreTraining*>(model.get()) == nullptr)
    throw Error("G-TRAIN-8", ErrorKind::usage,
                "Wav2Vec2PreTrainer trains a Wav2Vec2ForPreTraining; the model is another",
                "Load it with AutoModelForAudioPreTraining.");
  return model;
}

TrainerOptions pretraining_options(TrainerOptionsWith<Wav2Vec2PreTrainingArguments>& options) {
  options.model = checked_speech_model(std::move(options.model));
  if (options.model_init)
    options.model_init = [make = options.model_init](search::Trial* trial) {
      return checked_speech_model(make(trial));
    };
  return convert_options<TrainerOptions>(options);
}

}  // namespace

std::span<const OptionRow<Wav2Vec2PreTrainingArguments>>
Wav2Vec2PreTrainingArguments::own_options() {
  return kPreTrainingRows;
}

Wav2Vec2PreTrainingArguments Wav2Vec2PreTrainingArguments::resolved() const {
  return resolve_fields(*this);
}

nlohmann::ordered_json Wav2Vec2PreTrainingArguments::to_dict() const {
  return arguments_to_dict(*this);
}

Wav2Vec2PreTrainingArguments Wav2Vec2PreTrainingArguments::from_json(const nlohmann::json& dict) {
  return arguments_from_json<Wav2Vec2PreTrainingArguments>(dict);
}

Wav2Vec2PreTrainingArguments::operator TrainingArguments() const { return common_arguments(*this); }

bool operator==(const Wav2Vec2PreTrainingArguments&, const Wav2Vec2PreTrainingArguments&) = default;

DataCollatorForWav2Vec2Pretraining::DataCollatorForWav2Vec2Pretraining(
    Wav2Vec2CollatorOptions options)
    : options_(std::move(options)) {
  if (!options_.model)
    throw Error("G-DATA-13", ErrorKind::usage, "DataCollatorForWav2Vec2Pretraining has no model",
                "Set .model: it says how many frames a clip has.");
}

Batch DataCollatorForWav2Vec2Pretraining::operator()(std::vector<Example> rows) const {
  std::vector<torch::Tensor> clips;
  for (const auto& row : rows) clips.push_back(row.at("input_values").to_tensor());
  auto batch = options_.feature_extractor.pad(clips, options_.pad_to_multiple_of);
  const auto frames = options_.model->frames(batch["input_values"].size(1));
  SpanMaskOptions spans;
  spans.mask_prob = options_.mask_time_prob;
  spans.mask_length = options_.mask_time_length;
  if (batch.contains("attention_mask")) {
    auto& lengths = spans.lengths.emplace();
    for (const auto& clip : clips) lengths.push_back(options_.model->frames(clip.numel()));
  }
  NumpyRandomState random(data::batch_seed(options_.seed));
  const auto mask = compute_mask_indices(static_cast<int64_t>(rows.size()), frames, spans, random);
  batch.set("mask_time_indices", mask.to(torch::kLong));
  batch.set("sampled_negative_indices",
            sample_negative_indices(mask, options_.num_negatives, random));
  return batch;
}

Wav2Vec2PreTrainer::Wav2Vec2PreTrainer(TrainerOptionsWith<Wav2Vec2PreTrainingArguments> options)
    : Trainer(pretraining_options(options)), args_(options.args.resolved()) {
  loss_is_scaled_for_ga = false;
}

Wav2Vec2ForPreTraining& Wav2Vec2PreTrainer::speech_model() const {
  // The constructor has seen to it.
  return dynamic_cast<Wav2Vec2ForPreTraining&>(model());
}

double Wav2Vec2PreTrainer::temperature_after(int64_t updates) const {
  if (updates == 0) return kFirstTemperature;
  return std::max(args_.max_gumbel_temperature *
                      std::pow(args_.gumbel_temperature_decay, static_cast<double>(updates - 1)),
                  args_.min_gumbel_temperature);
}

torch::Tensor Wav2Vec2PreTrainer::training_step(Model& model, Batch inputs,
                                                std::optional<torch::Tensor> num_items_in_batch) {
  speech_model().set_gumbel_temperature(temperature_after(state().global_step));
  return Trainer::training_step(model, std::move(inputs), std::move(num_items_in_batch));
}

Loss Wav2Vec2PreTrainer::compute_loss(Model& model, Batch inputs, std::optional<torch::Tensor>) {
  auto outputs = run_model(model, inputs, model.is_training());
  const auto& mask = inputs["mask_time_indices"];
  const auto masked = mask.sum();
  if (model.is_training()) {
    last_contrastive_ = outputs["contrastive_loss"].detach() / masked;
    last_diversity_ = outputs["diversity_loss"].detach() / masked;
    last_perplexity_ = outputs["codevector_perplexity"].detach();
    if (const auto* attention = inputs.find("attention_mask")) {
      const auto lengths = attention->sum(-1).to(torch::kCPU);
      int64_t total = 0;
      for (int64_t row = 0; row < lengths.numel(); ++row)
        total += speech_model().frames(lengths[row].item<int64_t>());
      last_masked_ = masked.to(torch::kFloat) / double(total);
    } else {
      last_masked_ = masked.to(torch::kFloat) / double(mask.numel());
    }
  }
  auto loss = outputs.loss() / masked;
  return {std::move(loss), std::move(outputs)};
}

std::optional<torch::Tensor> Wav2Vec2PreTrainer::get_num_items_in_batch(
    const std::vector<Batch>&) const {
  return std::nullopt;
}

PredictionStep Wav2Vec2PreTrainer::prediction_step(Model& model, Batch inputs, bool, const Names&) {
  const torch::NoGradGuard no_grad;
  inputs = prepare_inputs(std::move(inputs));
  const auto autocast = compute_loss_context_manager();
  const auto outputs = run_model(model, inputs, /*training=*/false);
  const auto masked = inputs["mask_time_indices"].sum().to(torch::kFloat);
  const auto rows = inputs.rows();
  // One row each, so that they are gathered from all processes as predictions are.
  const auto sums =
      at::stack({outputs.loss(), outputs["contrastive_loss"], outputs["diversity_loss"], masked})
          .to(torch::kDouble) /
      double(rows);
  PredictionStep step;
  step.loss = outputs.loss() / masked;
  step.logits = {sums.unsqueeze(0).expand({rows, 4}).contiguous()};
  return step;
}

EvalLoopOutput Wav2Vec2PreTrainer::evaluation_loop(const DataLoader& dataloader,
                                                   const std::string& description,
                                                   std::optional<bool>,
                                                   std::optional<Names> ignore_keys,
                                                   const std::string& metric_key_prefix) {
  auto output = Trainer::evaluation_loop(dataloader, description, /*prediction_loss_only=*/false,
                                         std::move(ignore_keys), metric_key_prefix);
  if (!output.prediction.predictions.defined()) return output;
  const auto sums = output.prediction.predictions.to(torch::kCPU, torch::kDouble).sum(0);
  const auto masked = sums[3].item<double>();
  const auto set = [&](const char* name, int64_t place) {
    output.metrics[metric_key_prefix + name] = sums[place].item<double>() / masked;
  };
  set("_loss", 0);
  set("_contrastive_loss", 1);
  set("_diversity_loss", 2);
  return output;
}

void Wav2Vec2PreTrainer::log(Logs logs, std::optional<double> start_time) {
  if (logs.contains("loss") && last_contrastive_.defined()) {
    logs["constrast_loss"] = last_contrastive_.item<double>();
    logs["div_loss"] = last_diversity_.item<double>();
    logs["%_mask_idx"] = last_masked_.item<double>();
    logs["ppl"] = last_perplexity_.item<double>();
    logs["temp"] = temperature_after(state().global_step);
  }
  Trainer::log(std::move(logs), start_time);
}

nlohmann::ordered_json Wav2Vec2PreTrainer::arguments_to_save() const {
  return saved_arguments(args_, Trainer::arguments_to_save());
}

}  // namespace gradus
