#pragma once

#include <gradus/models/lora_config.h>
#include <gradus/trainers/preference_trainer.h>

#include <memory>
#include <optional>
#include <string>

namespace gradus {

/// Where the defaults of KTO differ from those of transformers.
struct KTODefaults : TrlDefaults {
  /// Far lower than for other training.
  static double learning_rate() { return 1e-6; }
  /// Rows stay beside those that they are compared with.
  static std::string train_sampling_strategy() { return "sequential"; }
};

/// The arguments of Kahneman-Tversky optimization: trl's `KTOConfig`.
struct KTOConfig {
#define GRADUS_DEFAULTS KTODefaults
#include <gradus/config/training_arguments_fields.inc>

  /// Accepted; the model is given as an object.
  nlohmann::json model_init_kwargs = nullptr;
  /// Only for mixtures of experts, which gradus does not have: must stay unset or 0.
  std::optional<double> router_aux_loss_coef = std::nullopt;
  bool disable_dropout = true;                     ///< Trains without dropout.
  std::optional<int64_t> dataset_num_proc = {};    ///< Accepted; rows are prepared in one process.
  std::optional<int64_t> max_length = 1024;        ///< Longest sequence in tokens; unset: no limit.
  std::optional<int64_t> pad_to_multiple_of = {};  ///< Rounds the padded length up.
  bool precompute_ref_log_probs = false;           ///< Asks the reference once, before training.
  std::optional<int64_t> precompute_ref_batch_size = {};  ///< Unset: that of training.
  std::string loss_type = "kto";                          ///< "kto" or "apo_zero_unpaired".
  double beta = 0.1;                   ///< How strongly the reference holds the policy.
  double desirable_weight = 1.0;       ///< Weight of completions that are wanted.
  double undesirable_weight = 1.0;     ///< Weight of those that are not.
  bool activation_offloading = false;  ///< Keeps activations in host memory.
  bool sync_ref_model = false;         ///< Moves the reference towards the policy now and then.
  double ref_model_mixup_alpha = 0.6;  ///< How far.
  int64_t ref_model_sync_steps = 512;  ///< Every so many steps.

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<KTOConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules. Throws `Error` G-TRL-1 for options that
  /// contradict each other.
  KTOConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static KTOConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const KTOConfig&, const KTOConfig&);
};

/// The members of `TrainerOptions`, a reference and an adapter.
///
/// `model` (a causal language model), `train_dataset` (rows with `completion` and `label`, or
/// pairs) and `processing_class` (a `Tokenizer`) are needed. `model_init` and `compute_loss_func`
/// are not taken.
struct KTOTrainerOptions {
  using Arguments = KTOConfig;           ///< Their type.
  using ScoreFunction = ComputeMetrics;  ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// What the policy is compared with. Unset: the model as it is now, as a frozen copy; with an
  /// adapter the model without it, or with the adapter as it is now.
  std::shared_ptr<Model> ref_model = nullptr;
  /// Trains an adapter on the model instead of the model. Its random numbers follow `args.seed`.
  std::optional<LoraConfig> peft_config = std::nullopt;
};

/// Teaches a language model which completions are wanted and which are not, trl's `KTOTrainer`.
///
/// A row has `prompt`, `completion` and `label`, true or false; or it is one of `DPOTrainer`, which
/// counts as two. Texts or messages. Logs have `kl`, `rewards/chosen`, `rewards/rejected`,
/// `rewards/margins`, `logps/*`, `logits/*`, `entropy` and `num_tokens`, as in trl. Thread-safety:
/// as `Trainer`.
class KTOTrainer : public PreferenceTrainer {
 public:
  /// Prepares the data, the reference and, with `peft_config`, the adapter. Throws `Error` G-TRL-1
  /// for options that contradict each other, G-TRL-2 for rows that cannot be used.
  explicit KTOTrainer(KTOTrainerOptions options);

  /// As given and resolved.
  const KTOConfig& kto_args() const { return args_; }

 protected:
  /// Its own steps may be recorded, and nobody reads their logits.
  StepTraits step_traits() const override;
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  /// Of the completions, and of the neighbours' where the loss needs them.
  std::vector<torch::Tensor> reference_log_probs(const Batch& inputs,
                                                 const ReferencePolicy& reference) const override;

 private:
  KTOTrainer(KTOConfig args, PreferenceSetup setup);
  static PreferenceSetup prepare(const KTOTrainerOptions& options, const KTOConfig& args);
  /// Whether the loss needs the neighbours' completions.
  bool estimates_kl() const { return args_.loss_type == "kto"; }

  KTOConfig args_;
};

}  // namespace gradus
