#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/trainers/rollout_trainer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// Where the defaults of trl's trainers that sample completions differ from those of transformers.
struct RolloutDefaults : TrlDefaults {
  /// Much lower than for other training.
  static double learning_rate() { return 1e-6; }
  /// Off: rewards read further columns.
  static bool remove_unused_columns() { return false; }
};

/// The arguments of group relative policy optimization: trl's `GRPOConfig`.
struct GRPOConfig {
#define GRADUS_DEFAULTS RolloutDefaults
#include <gradus/config/training_arguments_fields.inc>

  nlohmann::json model_init_kwargs = nullptr;  ///< Accepted; the model is given as an object.
  /// Only for mixtures of experts, which gradus does not have: must stay unset or 0.
  std::optional<double> router_aux_loss_coef = std::nullopt;
  bool disable_dropout = false;  ///< Drops nothing in training.
  /// Accepted: log probabilities are computed in float32 anyway.
  bool cast_lm_head_to_fp32 = false;
  int64_t num_generations = 8;  ///< Completions of each prompt.
  /// The same in evaluations; unset: as in training.
  std::optional<int64_t> num_generations_eval = std::nullopt;
  std::optional<int64_t> max_completion_length = 512;  ///< Most tokens of a completion.
  bool ds3_gather_for_generation = true;               ///< Accepted: for DeepSpeed.
  bool shuffle_dataset = true;  ///< Takes the prompts in a new order in every pass.
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;  ///< Rounds padded lengths up.
  /// Completions that are made at once, in all processes; unset: those of steps_per_generation
  /// steps.
  std::optional<int64_t> generation_batch_size = std::nullopt;
  /// Batches that completions are made for at once; unset: gradient_accumulation_steps.
  std::optional<int64_t> steps_per_generation = std::nullopt;
  /// Of sampling; the log probabilities of the loss are divided by it, too.
  double temperature = 1.0;
  double top_p = 1.0;  ///< Samples from the most likely tokens up to this probability.
  int64_t top_k = 0;   ///< Samples from the k most likely tokens; 0: from all.
  /// Least probability of a token, relative to the most likely one.
  std::optional<double> min_p = std::nullopt;
  /// Further options of generation; they replace those above.
  nlohmann::json generation_kwargs = nullptr;
  nlohmann::json chat_template_kwargs = nullptr;  ///< Variables for the chat template.
  double repetition_penalty = 1.0;                ///< Above 1 repeats become unlikely.
  /// Accepted: gradus has one key-value cache.
  std::optional<std::string> cache_implementation = std::nullopt;
  bool use_vllm = false;                 ///< Must stay false: gradus samples with the model itself.
  std::string vllm_mode = "colocate";    ///< Accepted and not used.
  std::string vllm_model_impl = "vllm";  ///< Accepted and not used.
  bool vllm_enable_sleep_mode = false;   ///< Accepted and not used.
  /// Accepted and not used.
  std::optional<std::string> vllm_structured_outputs_regex = std::nullopt;
  std::optional<std::string> vllm_server_base_url = std::nullopt;  ///< Accepted and not used.
  std::string vllm_server_host = "0.0.0.0";                        ///< Accepted and not used.
  int64_t vllm_server_port = 8000;                                 ///< Accepted and not used.
  double vllm_server_timeout = 240.0;                              ///< Accepted and not used.
  int64_t vllm_group_port = 51216;                                 ///< Accepted and not used.
  double vllm_gpu_memory_utilization = 0.3;                        ///< Accepted and not used.
  std::optional<int64_t> vllm_max_model_length = std::nullopt;     ///< Accepted and not used.
  int64_t vllm_tensor_parallel_size = 1;                           ///< Accepted and not used.
  double beta = 0.0;  ///< Weight of the divergence from the reference model; 0: there is none.
  int64_t num_iterations = 1;  ///< How often each generation batch is trained on.
  double epsilon = 0.2;        ///< Ratios below 1 - epsilon are clipped.
  /// Upper bound of ratios before clipping (two-sided clipping).
  std::optional<double> delta = std::nullopt;
  /// Ratios above 1 + epsilon_high are clipped; unset: as epsilon. For cispo the bound itself.
  std::optional<double> epsilon_high = std::nullopt;
  /// sapo: temperature of tokens with an advantage of 0 or less.
  double sapo_temperature_neg = 1.05;
  double sapo_temperature_pos = 1.0;  ///< sapo: temperature of tokens with a positive advantage.
  double vespo_k_pos = 2.0;           ///< vespo: power for advantages of 0 or more.
  double vespo_lambda_pos = 3.0;      ///< vespo: decay for advantages of 0 or more.
  double vespo_k_neg = 3.0;           ///< vespo: power for negative advantages.
  double vespo_lambda_neg = 2.0;      ///< vespo: decay for negative advantages.
  /// Ratios of the policies per token, or one per sequence.
  std::string importance_sampling_level = "token";
  /// One weight for each reward; unset: 1.
  std::optional<std::vector<double>> reward_weights = std::nullopt;
  /// Add rewards up and then scale them, or the other way round.
  std::string multi_objective_aggregation = "sum_then_normalize";
  /// Divide by the deviation of a prompt's rewards (group), of all (batch), or not.
  std::string scale_rewards = "group";
  std::string loss_type = "dapo";           ///< How the tokens' losses are clipped and averaged.
  bool mask_truncated_completions = false;  ///< Completions without end do not count in the loss.
  bool sync_ref_model = false;         ///< Moves the reference towards the model from time to time.
  double ref_model_mixup_alpha = 0.6;  ///< Share of the model in the reference after such a move.
  int64_t ref_model_sync_steps = 512;  ///< Steps between two moves.
  /// Share of the tokens, by entropy, that count in the policy's loss.
  double top_entropy_quantile = 1.0;
  double entropy_coef = 0.0;          ///< Weight of the mean entropy, which is taken off the loss.
  bool use_adaptive_entropy = false;  ///< Changes entropy_coef with every step.
  double entropy_coef_min = 0.0;      ///< Its least value then.
  double entropy_coef_max = 1.0;      ///< Its greatest value then.
  double entropy_coef_delta = 0.005;  ///< How much it changes in a step.
  /// It grows while the entropy is not above this, and has an effect only then.
  double entropy_target = 0.2;
  /// Accepted and not used: there are no tools.
  std::optional<int64_t> max_tool_calling_iterations = std::nullopt;
  bool vllm_importance_sampling_correction = true;                ///< Accepted and not used.
  std::string vllm_importance_sampling_mode = "sequence_mask";    ///< Accepted and not used.
  std::optional<double> vllm_importance_sampling_clip_max = 3.0;  ///< Accepted and not used.
  /// Accepted and not used.
  std::optional<double> vllm_importance_sampling_clip_min = std::nullopt;
  /// Leaves out completions with negative advantage that have become more unlikely than this.
  std::optional<double> off_policy_mask_threshold = std::nullopt;
  bool use_bias_correction_kl = true;  ///< Multiplies the divergence by the ratio of the policies.
  /// Prints completions with every log, and writes them to output_dir/completions as Parquet.
  bool log_completions = false;
  bool log_multimodal = true;  ///< Accepted: there are no images.
  /// How many completions are printed; unset: all.
  std::optional<int64_t> num_completions_to_print = std::nullopt;
  bool log_unique_prompts = false;  ///< Prints one completion of each prompt.
  /// Accepted: gradus does not push to a hub.
  std::optional<std::string> log_completions_hub_repo = std::nullopt;
  /// Accepted and not used.
  bool use_transformers_continuous_batching = false;
  nlohmann::json transformers_continuous_batching_config = nullptr;  ///< Accepted and not used.
  bool use_transformers_paged = false;  ///< The same under its old name.
  /// Accepted and not used.
  std::optional<double> vllm_importance_sampling_cap = std::nullopt;

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<GRPOConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules. Throws `Error` G-TRL-1 for values that
  /// contradict each other.
  GRPOConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static GRPOConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const GRPOConfig&, const GRPOConfig&);
};

/// The members of `TrainerOptions`, rewards, a reference and an adapter.
///
/// `model` (a causal language model), `train_dataset` (rows with a column `prompt`) and
/// `processing_class` (a `Tokenizer`) are needed. What has no meaning for sampled completions is
/// not taken: `data_collator`, `model_init`, `compute_loss_func`, `compute_metrics` and
/// `preprocess_logits_for_metrics`.
struct GRPOTrainerOptions {
  using Arguments = GRPOConfig;          ///< Their type.
  using ScoreFunction = ComputeMetrics;  ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// Trains an adapter on the model instead of the model. Its random numbers follow `args.seed`.
  std::optional<LoraConfig> peft_config = std::nullopt;
  /// What the divergence is measured from, with `beta`; by default the model as it is now.
  std::shared_ptr<Model> ref_model = nullptr;
  /// One or more sources of rewards, each with a name. Needed.
  std::vector<Reward> reward_funcs = {};
  /// The tokenizers of reward models, one for each of `reward_funcs`; null for functions.
  std::vector<std::shared_ptr<Tokenizer>> reward_processing_classes = {};
  /// Makes the completions in place of the model's own sampling.
  RolloutFunction rollout_func = nullptr;
};

/// Group relative policy optimization, trl's `GRPOTrainer`.
///
/// The model writes several completions of every prompt. Those with a higher reward than the others
/// of their prompt become more likely. Losses, advantages, metrics and the order of the data are
/// those of trl. Thread-safety: as `Trainer`.
class GRPOTrainer : public RolloutTrainer {
 public:
  /// Prepares the data and, with `peft_config`, the adapter; with `beta` above 0 keeps a copy of
  /// the model as reference. Throws `Error` G-TRL-1 for options that contradict each other.
  explicit GRPOTrainer(GRPOTrainerOptions options);
  ~GRPOTrainer() override;

  /// As given and resolved.
  const GRPOConfig& grpo_args() const { return args_; }

 protected:
  void score(Scored& scored, MetricBatch& metrics) override;
  /// Nobody reads the logits of its own steps. They make completions, so they are not recorded.
  StepTraits step_traits() const override;
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;
  StateTree own_state() const override;
  void load_own_state(const StateTree& state) override;

 private:
  GRPOTrainer(GRPOConfig args, RolloutOptions options);
  torch::Tensor high_entropy_mask(const torch::Tensor& entropy, const torch::Tensor& mask) const;
  torch::Tensor kept_on_policy(const Batch& inputs, const torch::Tensor& log_probs,
                               const torch::Tensor& old, const torch::Tensor& mask) const;
  torch::Tensor mean_loss(const torch::Tensor& losses, const torch::Tensor& mask,
                          const Batch& inputs, bool training) const;
  torch::Tensor entropy_bonus(const torch::Tensor& entropy, const torch::Tensor& mask,
                              bool training, MetricBatch& metrics);
  void note_clipping(const torch::Tensor& ratio, const torch::Tensor& advantages,
                     const torch::Tensor& mask, MetricBatch& metrics) const;

  GRPOConfig args_;
  // Of the adaptive entropy bonus.
  double entropy_coef_;           ///< In use.
  double last_entropy_;           ///< Of the step before; infinite before the first.
  torch::Tensor window_entropy_;  ///< Sum and number of tokens of the window under way.
};

}  // namespace gradus
