#pragma once

#include <gradus/audio/feature_extractor.h>
#include <gradus/config/trainer_arguments.h>
#include <gradus/models/speech_models.h>
#include <gradus/train/trainer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// The arguments of a pre-training: those of `TrainingArguments`, then the temperature of the
/// quantizer. The defaults are those of transformers' run_wav2vec2_pretraining_no_trainer.
struct Wav2Vec2PreTrainingArguments {
#include <gradus/config/training_arguments_fields.inc>

  double max_gumbel_temperature = 2.0;         ///< Temperature at the beginning.
  double min_gumbel_temperature = 0.5;         ///< It never becomes lower.
  double gumbel_temperature_decay = 0.999995;  ///< Its factor after each step.

  /// The table of these three.
  static std::span<const OptionRow<Wav2Vec2PreTrainingArguments>> own_options();

  /// As `TrainingArguments::resolved`; the three are checked too.
  Wav2Vec2PreTrainingArguments resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static Wav2Vec2PreTrainingArguments from_json(const nlohmann::json& dict);
  /// Everything but the three.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const Wav2Vec2PreTrainingArguments&, const Wav2Vec2PreTrainingArguments&);
};

/// Options of `DataCollatorForWav2Vec2Pretraining`.
struct Wav2Vec2CollatorOptions {
  std::shared_ptr<const SpeechModel> model = {};    ///< Says how many frames a clip has. Required.
  Wav2Vec2FeatureExtractor feature_extractor = {};  ///< Says how sound is padded.
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;  ///< Of samples.
  double mask_time_prob = 0.65;                              ///< Share of frames to mask.
  int64_t mask_time_length = 10;                             ///< Frames of a span.
  int64_t num_negatives = 100;                               ///< Other frames per masked frame.
  std::optional<int64_t> seed = std::nullopt;                ///< By default the loader's.
};

/// Pads clips and draws masked spans and negatives, as the class of that name in transformers'
/// script does.
///
/// The numbers come from numpy's generator, seeded anew for each batch from (seed, epoch, number of
/// the batch), so that a batch is the same for any number of workers and after a resume. In the
/// first batch of the first epoch it is `numpy.random.seed(seed)`. Several threads may call it at
/// once.
class DataCollatorForWav2Vec2Pretraining {
 public:
  /// Throws `Error` G-DATA-13 without a model.
  explicit DataCollatorForWav2Vec2Pretraining(Wav2Vec2CollatorOptions options);
  /// `input_values`, `attention_mask` where the extractor makes one, `mask_time_indices` and
  /// `sampled_negative_indices`.
  Batch operator()(std::vector<Example> rows) const;

 private:
  Wav2Vec2CollatorOptions options_;
};

/// Pre-trains wav2vec 2.0: the `Wav2Vec2PreTrainer` of transformers' research projects, with the
/// steps and logged values of run_wav2vec2_pretraining_no_trainer.
///
/// The loss of a batch is divided by its masked frames. After update k, counted from 0, the
/// temperature is max(max · decay^k, min). Logs of training have `constrast_loss` (spelt as in the
/// script), `div_loss`, `%_mask_idx`, `ppl` and `temp` of the last batch beside the usual values.
/// Evaluations report `eval_loss`, `eval_contrastive_loss` and `eval_diversity_loss`, each over all
/// masked frames.
class Wav2Vec2PreTrainer : public Trainer {
 public:
  /// As the constructor of `Trainer`. Throws `Error` G-TRAIN-8 unless the model is a
  /// `Wav2Vec2ForPreTraining`.
  explicit Wav2Vec2PreTrainer(TrainerOptionsWith<Wav2Vec2PreTrainingArguments> options);

  EvalLoopOutput evaluation_loop(const DataLoader& dataloader, const std::string& description,
                                 std::optional<bool> prediction_loss_only = {},
                                 std::optional<Names> ignore_keys = {},
                                 const std::string& metric_key_prefix = "eval") override;

 protected:
  /// The model's loss over its masked frames.
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  /// Sets the temperature first: it follows from the number of steps.
  torch::Tensor training_step(Model& model, Batch inputs,
                              std::optional<torch::Tensor> num_items_in_batch) override;
  PredictionStep prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                 const Names& ignore_keys) override;
  /// None: each batch is divided by its own masked frames.
  std::optional<torch::Tensor> get_num_items_in_batch(
      const std::vector<Batch>& window) const override;
  void log(Logs logs, std::optional<double> start_time = {}) override;
  nlohmann::ordered_json arguments_to_save() const override;

 private:
  Wav2Vec2ForPreTraining& speech_model() const;
  double temperature_after(int64_t updates) const;

  Wav2Vec2PreTrainingArguments args_;
  /// Of the last batch of training: contrastive and diversity loss, share of masked frames,
  /// perplexity; on the device.
  torch::Tensor last_contrastive_, last_diversity_, last_masked_, last_perplexity_;
};

}  // namespace gradus
