#pragma once

#include <gradus/trainers/grpo.h>

namespace gradus {

/// The arguments of REINFORCE leave-one-out: trl's `RLOOConfig`.
struct RLOOConfig {
#define GRADUS_DEFAULTS RolloutDefaults
#include <gradus/config/training_arguments_fields.inc>

  nlohmann::json model_init_kwargs = nullptr;  ///< Accepted; the model is given as an object.
  /// Only for mixtures of experts, which gradus does not have: must stay unset or 0.
  std::optional<double> router_aux_loss_coef = std::nullopt;
  bool disable_dropout = false;  ///< Drops nothing in training.
  int64_t num_generations = 2;   ///< Completions of each prompt.
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
  /// Weight of the divergence from the reference model, which is taken off the rewards.
  double beta = 0.05;
  int64_t num_iterations = 1;  ///< How often each generation batch is trained on.
  double epsilon = 0.2;        ///< Ratios below 1 - epsilon are clipped.
  /// Ratios above 1 + epsilon_high are clipped; unset: as epsilon.
  std::optional<double> epsilon_high = std::nullopt;
  /// One weight for each reward; unset: 1.
  std::optional<std::vector<double>> reward_weights = std::nullopt;
  bool normalize_advantages = false;  ///< Gives the advantages of a batch mean 0 and deviation 1.
  /// Bounds of the rewards, two numbers.
  std::optional<std::vector<double>> reward_clip_range = std::nullopt;
  bool mask_truncated_completions = false;  ///< Completions without end do not count in the loss.
  bool sync_ref_model = false;         ///< Moves the reference towards the model from time to time.
  double ref_model_mixup_alpha = 0.6;  ///< Share of the model in the reference after such a move.
  int64_t ref_model_sync_steps = 512;  ///< Steps between two moves.
  /// Prints completions with every log, and writes them to output_dir/completions as Parquet.
  bool log_completions = false;
  bool log_multimodal = true;  ///< Accepted: there are no images.
  /// How many completions are printed; unset: all.
  std::optional<int64_t> num_completions_to_print = std::nullopt;
  bool log_unique_prompts = false;  ///< Prints one completion of each prompt.
  /// Accepted and not used.
  bool use_transformers_continuous_batching = false;
  nlohmann::json transformers_continuous_batching_config = nullptr;  ///< Accepted and not used.
  bool use_transformers_paged = false;  ///< The same under its old name.

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<RLOOConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules. Throws `Error` G-TRL-1 for values that
  /// contradict each other.
  RLOOConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static RLOOConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const RLOOConfig&, const RLOOConfig&);
};

/// The members of `TrainerOptions`, rewards, a reference and an adapter.
///
/// `model` (a causal language model), `train_dataset` (rows with a column `prompt`) and
/// `processing_class` (a `Tokenizer`) are needed. What has no meaning for sampled completions is
/// not taken: `data_collator`, `model_init`, `compute_loss_func`, `compute_metrics` and
/// `preprocess_logits_for_metrics`.
struct RLOOTrainerOptions {
  using Arguments = RLOOConfig;          ///< Their type.
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

/// REINFORCE leave-one-out, trl's `RLOOTrainer`.
///
/// As `GRPOTrainer`, but the advantage of a completion is the distance of its reward from the mean
/// of the other completions of its prompt, the divergence from the reference is a part of the
/// reward, and whole completions are weighted, not tokens. Thread-safety: as `Trainer`.
class RLOOTrainer : public RolloutTrainer {
 public:
  /// As `GRPOTrainer`. Throws `Error` G-TRL-1 for options that contradict each other.
  explicit RLOOTrainer(RLOOTrainerOptions options);
  ~RLOOTrainer() override;

  /// As given and resolved.
  const RLOOConfig& rloo_args() const { return args_; }

 protected:
  void score(Scored& scored, MetricBatch& metrics) override;
  /// Nobody reads the logits of its own steps. They make completions, so they are not recorded.
  StepTraits step_traits() const override;
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;

 private:
  RLOOTrainer(RLOOConfig args, RolloutOptions options);

  RLOOConfig args_;
};

}  // namespace gradus
