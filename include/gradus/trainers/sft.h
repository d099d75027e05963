#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/models/lora_config.h>
#include <gradus/trainers/trl_trainer.h>

#include <optional>
#include <string>

namespace gradus {

/// Where the defaults of supervised fine-tuning differ from those of transformers.
struct SFTDefaults : TrlDefaults {
  /// Lower than for other training.
  static double learning_rate() { return 2e-5; }
};

/// The arguments of supervised fine-tuning: trl's `SFTConfig`.
struct SFTConfig {
#define GRADUS_DEFAULTS SFTDefaults
#include <gradus/config/training_arguments_fields.inc>

  /// Accepted; the model is given as an object.
  nlohmann::json model_init_kwargs = nullptr;
  /// Only for mixtures of experts, which gradus does not have: must stay unset or 0.
  std::optional<double> router_aux_loss_coef = std::nullopt;
  /// A file with the chat template to use, in Jinja.
  std::optional<std::string> chat_template_path = std::nullopt;
  std::string dataset_text_field = "text";         ///< The column with the text.
  nlohmann::json dataset_kwargs = nullptr;         ///< {"skip_prepare_dataset": true}.
  std::optional<int64_t> dataset_num_proc = {};    ///< Accepted; rows are prepared in one process.
  std::optional<std::string> eos_token = {};       ///< The end token; unset: the tokenizer's.
  std::optional<int64_t> max_length = 1024;        ///< Longest row in tokens; unset: no limit.
  std::string truncation_mode = "keep_start";      ///< Which end of a longer row stays.
  bool shuffle_dataset = false;                    ///< Shuffles the rows once, before training.
  bool packing = false;                            ///< Joins rows into rows of `max_length`.
  std::string packing_strategy = "bfd";            ///< "bfd", "bfd_split" or "wrapped".
  bool padding_free = false;                       ///< A batch is one row without padding.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
  std::optional<bool> eval_packing = {};           ///< Unset: as `packing`.
  std::optional<bool> completion_only_loss = {};   ///< Unset: if there are completions.
  bool assistant_only_loss = false;                ///< Only what the assistant says counts.
  std::string loss_type = "nll";                   ///< "nll" or "dft".
  bool activation_offloading = false;              ///< Keeps activations in host memory.
  std::optional<std::string> pad_token = std::nullopt;  ///< Unset: the tokenizer's, else the end.

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<SFTConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules.
  SFTConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static SFTConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const SFTConfig&, const SFTConfig&);
};

/// The members of `TrainerOptions`, and an adapter.
///
/// `model` (a causal language model), `train_dataset` (rows in one of the forms of
/// docs/user/sft.md) and `processing_class` (a `Tokenizer`) are needed. `model_init` is not taken.
struct SFTTrainerOptions {
  using Arguments = SFTConfig;           ///< Their type.
  using ScoreFunction = ComputeMetrics;  ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// Trains an adapter on the model instead of the model. Its random numbers follow `args.seed`.
  std::optional<LoraConfig> peft_config = std::nullopt;
  /// Makes a text of a row.
  std::function<std::string(const Example&)> formatting_func = nullptr;
};

/// Supervised fine-tuning of a language model, trl's `SFTTrainer`.
///
/// Rows hold text, prompt and completion, messages, or token ids. They are made into tokens and
/// labels in the constructor, with trl's rules. Logs have `entropy`, `mean_token_accuracy` and
/// `num_tokens`, as in trl. Thread-safety: as `Trainer`.
class SFTTrainer : public TrlTrainer {
 public:
  /// Prepares the data and, with `peft_config`, the adapter. Throws `Error` G-TRL-1 for options
  /// that contradict each other, G-TRL-2 for rows that cannot be used.
  explicit SFTTrainer(SFTTrainerOptions options);

  /// As given and resolved.
  const SFTConfig& sft_args() const { return args_; }

 protected:
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  /// Its own steps may be recorded, and nobody reads their logits.
  StepTraits step_traits() const override;
  /// Batches without padding are filled up to few lengths.
  Batch batch_for_gpu(Batch inputs) const override;
  /// Begins to count the rows of an evaluation.
  DataLoaderOptions eval_dataloader_options(const DatasetRef& eval_dataset) override;
  /// A batch without padding is one row, but counts for all that were joined.
  int64_t rows_of_loss(int64_t rows) const override;

 private:
  struct Prepared;
  SFTTrainer(SFTConfig args, Prepared prepared);
  static Prepared prepare(SFTTrainerOptions options, const SFTConfig& args);

  SFTConfig args_;
  bool has_loss_function_ = false;
  int64_t pad_token_id_ = 0;
  mutable int64_t eval_rows_left_ = 0;  ///< Of the evaluation under way.
};

}  // namespace gradus
