#pragma once

#include <gradus/models/lora_config.h>
#include <gradus/trainers/trl_trainer.h>

#include <optional>
#include <string>

namespace gradus {

struct PreparedPreferences;

/// Where the defaults of reward modelling differ from those of transformers.
struct RewardDefaults : TrlDefaults {
  /// Higher than for other training: the head is new.
  static double learning_rate() { return 1e-4; }
};

/// The arguments of reward modelling: trl's `RewardConfig`.
struct RewardConfig {
#define GRADUS_DEFAULTS RewardDefaults
#include <gradus/config/training_arguments_fields.inc>

  /// Accepted; the model is given as an object.
  nlohmann::json model_init_kwargs = nullptr;
  /// A file with the chat template to use, in Jinja.
  std::optional<std::string> chat_template_path = std::nullopt;
  bool disable_dropout = true;                     ///< Trains without dropout.
  std::optional<int64_t> dataset_num_proc = {};    ///< Accepted; rows are prepared in one process.
  std::optional<std::string> eos_token = {};       ///< The end token; unset: the tokenizer's.
  std::optional<int64_t> max_length = 1024;        ///< Pairs with a longer text are left out.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
  /// Weight of a term that keeps rewards around zero; unset: there is none.
  std::optional<double> center_rewards_coefficient = {};
  bool activation_offloading = false;                   ///< Keeps activations in host memory.
  std::optional<std::string> pad_token = std::nullopt;  ///< Unset: the tokenizer's, else the end.

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<RewardConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules.
  RewardConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static RewardConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const RewardConfig&, const RewardConfig&);
};

/// The members of `TrainerOptions`, and an adapter.
///
/// `model` (a sequence classifier with one label), `train_dataset` (rows with `chosen` and
/// `rejected`) and `processing_class` (a `Tokenizer`) are needed. `model_init` and
/// `compute_loss_func` are not taken.
struct RewardTrainerOptions {
  using Arguments = RewardConfig;        ///< Their type.
  using ScoreFunction = ComputeMetrics;  ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// Trains an adapter on the model instead of the model. Its `modules_to_save` should name the
  /// head ("score"), which is new. Its random numbers follow `args.seed`.
  std::optional<LoraConfig> peft_config = std::nullopt;
};

/// Trains a model that gives texts a reward, trl's `RewardTrainer`.
///
/// A row has a text that was `chosen` and one that was `rejected`, both after the same `prompt` if
/// there is one, as texts or as messages; `margin` is optional. The loss of a pair is
/// -log σ(reward of chosen - reward of rejected - margin). Logs have `accuracy`, `margin`,
/// `min_reward`, `mean_reward`, `max_reward` and `num_tokens`. Thread-safety: as `Trainer`.
class RewardTrainer : public TrlTrainer {
 public:
  /// Prepares the data and, with `peft_config`, the adapter. Throws `Error` G-TRL-1 for options
  /// that contradict each other, G-TRL-2 for rows that cannot be used.
  explicit RewardTrainer(RewardTrainerOptions options);

  /// As given and resolved.
  const RewardConfig& reward_args() const { return args_; }

 protected:
  /// Its own steps may be recorded, and nobody reads their logits.
  StepTraits step_traits() const override;
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  /// Rows are pairs.
  int64_t rows_of_loss(int64_t rows) const override { return rows / 2; }

 private:
  RewardTrainer(RewardConfig args, PreparedPreferences prepared);
  static PreparedPreferences prepare(const RewardTrainerOptions& options, const RewardConfig& args);

  RewardConfig args_;
};

}  // namespace gradus
