#pragma once

#include <gradus/models/lora_config.h>
#include <gradus/trainers/preference_trainer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// Where the defaults of preference optimization differ from those of transformers.
struct DPODefaults : TrlDefaults {
  /// Far lower than for other training.
  static double learning_rate() { return 1e-6; }
};

/// The arguments of direct preference optimization: trl's `DPOConfig`.
struct DPOConfig {
#define GRADUS_DEFAULTS DPODefaults
#include <gradus/config/training_arguments_fields.inc>

  /// Accepted; the model is given as an object.
  nlohmann::json model_init_kwargs = nullptr;
  /// Only for mixtures of experts, which gradus does not have: must stay unset or 0.
  std::optional<double> router_aux_loss_coef = std::nullopt;
  bool disable_dropout = true;                     ///< Trains without dropout.
  std::optional<int64_t> dataset_num_proc = {};    ///< Accepted; rows are prepared in one process.
  std::optional<int64_t> max_length = 1024;        ///< Longest sequence in tokens; unset: no limit.
  std::string truncation_mode = "keep_start";      ///< Which end of a longer sequence stays.
  bool padding_free = false;                       ///< Accepted and ignored, as in trl 1.16.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
  bool precompute_ref_log_probs = false;           ///< Asks the reference once, before training.
  std::optional<int64_t> precompute_ref_batch_size = {};  ///< Unset: that of training.
  std::vector<std::string> loss_type = {"sigmoid"};       ///< One or more of trl's losses.
  std::optional<std::vector<double>> loss_weights = {};   ///< One for each loss; unset: 1.
  std::optional<double> ld_alpha = {};                    ///< LD-DPO's weight of what is longer.
  std::string f_divergence_type = "reverse_kl";           ///< How policy and reference differ.
  double f_alpha_divergence_coef = 0.5;                   ///< α of alpha_divergence.
  double label_smoothing = 0.0;        ///< How likely a preference is wrong: robust, exo_pair, aot.
  double beta = 0.1;                   ///< How strongly the reference holds the policy.
  bool use_weighting = false;          ///< Weights pairs by their likelihood, as WPO.
  double discopop_tau = 0.05;          ///< Temperature of discopop.
  bool activation_offloading = false;  ///< Keeps activations in host memory.
  bool sync_ref_model = false;         ///< Moves the reference towards the policy now and then.
  double ref_model_mixup_alpha = 0.6;  ///< How far.
  int64_t ref_model_sync_steps = 512;  ///< Every so many steps.
  std::optional<std::string> pad_token = std::nullopt;  ///< Unset: the tokenizer's, else the end.

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<DPOConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules. Throws `Error` G-TRL-1 for options that
  /// contradict each other.
  DPOConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static DPOConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const DPOConfig&, const DPOConfig&);
};

/// The members of `TrainerOptions`, a reference and an adapter.
///
/// `model` (a causal language model), `train_dataset` (rows with `chosen` and `rejected`) and
/// `processing_class` (a `Tokenizer`) are needed. `model_init` and `compute_loss_func` are not
/// taken.
struct DPOTrainerOptions {
  using Arguments = DPOConfig;           ///< Their type.
  using ScoreFunction = ComputeMetrics;  ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// What the policy is compared with. Unset: the model as it is now, as a frozen copy; with an
  /// adapter the model without it, or with the adapter as it is now.
  std::shared_ptr<Model> ref_model = nullptr;
  /// Trains an adapter on the model instead of the model. Its random numbers follow `args.seed`.
  std::optional<LoraConfig> peft_config = std::nullopt;
};

/// Direct preference optimization of a language model, trl's `DPOTrainer`.
///
/// A row has a completion that was `chosen` and one that was `rejected`, with their `prompt` or
/// both beginning with it, as texts or as messages. Logs have `rewards/chosen`, `rewards/rejected`,
/// `rewards/accuracies`, `rewards/margins`, `logps/…`, `logits/…`, `entropy`,
/// `mean_token_accuracy` and `num_tokens`, as in trl. Thread-safety: as `Trainer`.
class DPOTrainer : public PreferenceTrainer {
 public:
  /// Prepares the data, the reference and, with `peft_config`, the adapter. Throws `Error` G-TRL-1
  /// for options that contradict each other, G-TRL-2 for rows that cannot be used.
  explicit DPOTrainer(DPOTrainerOptions options);

  /// As given and resolved.
  const DPOConfig& dpo_args() const { return args_; }

 protected:
  /// Its own steps may be recorded, and nobody reads their logits.
  StepTraits step_traits() const override;
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  /// Rows are pairs.
  int64_t rows_of_loss(int64_t rows) const override { return rows / 2; }
  /// Of the sequences that were chosen, and of those that were rejected.
  std::vector<torch::Tensor> reference_log_probs(const Batch& inputs,
                                                 const ReferencePolicy& reference) const override;

 private:
  DPOTrainer(DPOConfig args, PreferenceSetup setup);
  static PreferenceSetup prepare(const DPOTrainerOptions& options, const DPOConfig& args);

  DPOConfig args_;
};

}  // namespace gradus
