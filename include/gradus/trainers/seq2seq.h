#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/models/generation_config.h>
#include <gradus/train/trainer.h>

namespace gradus {

class PreTrainedModel;

/// The arguments of a sequence-to-sequence run: those of `TrainingArguments`, then the five of
/// transformers' `Seq2SeqTrainingArguments`.
struct Seq2SeqTrainingArguments {
#include <gradus/config/training_arguments_fields.inc>

  bool sortish_sampler = false;        ///< accepted; as in transformers, nothing reads it
  bool predict_with_generate = false;  ///< evaluate and predict with generated text
  std::optional<int64_t> generation_max_length =
      std::nullopt;  ///< of evaluation; unset: the model's
  std::optional<int64_t> generation_num_beams =
      std::nullopt;                            ///< of evaluation; unset: the model's
  nlohmann::json generation_config = nullptr;  ///< a dictionary, a file or a folder

  /// The table of these five.
  static std::span<const OptionRow<Seq2SeqTrainingArguments>> own_options();

  /// As `TrainingArguments::resolved`; the five are checked too.
  Seq2SeqTrainingArguments resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// `to_dict` with an indent of 2.
  std::string to_json_string() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static Seq2SeqTrainingArguments from_json(const nlohmann::json& dict);
  /// Everything but the five.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const Seq2SeqTrainingArguments&, const Seq2SeqTrainingArguments&);
};

/// What the constructor takes: the members of `TrainerOptions`, with these arguments.
using Seq2SeqTrainerOptions = TrainerOptionsWith<Seq2SeqTrainingArguments>;

/// The Trainer for models that write text from text, transformers' `Seq2SeqTrainer`.
///
/// With `predict_with_generate`, `evaluate` and `predict` give the tokens the model generates in
/// place of its logits; the loss is the model's. How to generate: what `evaluate` and `predict` are
/// given, then `generation_max_length` and `generation_num_beams`, then the model's
/// generation_config, which the option `generation_config` (a file, a folder or a dictionary)
/// replaces.
class Seq2SeqTrainer : public Trainer {
 public:
  /// Throws `Error` G-GEN-1 or G-GEN-2 for a generation_config that makes no sense, G-TRAIN-19 for
  /// a model that cannot generate but should.
  explicit Seq2SeqTrainer(Seq2SeqTrainerOptions options);

  using Trainer::evaluate;
  using Trainer::predict;
  /// With options of generation for this call.
  Metrics evaluate(EvalDatasets eval_dataset, std::optional<Names> ignore_keys,
                   const std::string& metric_key_prefix, const GenerationOptions& generation);
  /// The same for `predict`.
  PredictionOutput predict(DatasetRef test_dataset, std::optional<Names> ignore_keys,
                           const std::string& metric_key_prefix,
                           const GenerationOptions& generation);

  /// As given and resolved, with the five options of this trainer; later changes of the others are
  /// in `args()`.
  const Seq2SeqTrainingArguments& seq2seq_args() const { return args_; }

 protected:
  /// How the current evaluation or prediction generates: what it was given, then the arguments.
  virtual GenerationOptions generation_options() const;
  /// What the current `evaluate` or `predict` was given.
  const GenerationOptions& given_generation() const { return given_; }
  /// Generates where `predict_with_generate` asks for it.
  PredictionStep prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                 const Names& ignore_keys) override;
  /// Every batch counts as a full one, as in transformers.
  int64_t rows_of_loss(int64_t rows) const override;
  /// With the five.
  nlohmann::ordered_json arguments_to_save() const override;
  /// Training steps are those of `Trainer`; only evaluation generates.
  StepTraits step_traits() const override;

 private:
  torch::Tensor filled_up(const torch::Tensor& ids, const PreTrainedModel& model) const;

  Seq2SeqTrainingArguments args_;
  std::shared_ptr<TokenizerLike> tokenizer_;
  GenerationOptions given_;  ///< to the current evaluate() or predict()
};

}  // namespace gradus
