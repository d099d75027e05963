#pragma once

#include <gradus/trainers/grpo.h>

namespace gradus {

/// The arguments of on-policy distillation: trl's `DistillationConfig`.
struct OnPolicyDistillationConfig {
#define GRADUS_DEFAULTS RolloutDefaults
#include <gradus/config/training_arguments_fields.inc>

  nlohmann::json model_init_kwargs = nullptr;  ///< Accepted; the model is given as an object.
  /// Folder of the teacher; used when no teacher is given as an object.
  std::optional<std::string> teacher_model_name_or_path = std::nullopt;
  /// Accepted: folders have no revisions.
  std::optional<std::string> teacher_model_revision = std::nullopt;
  /// Accepted; the teacher's own folder says how it is loaded.
  nlohmann::json teacher_model_init_kwargs = nullptr;
  bool disable_dropout = false;                        ///< Drops nothing in training.
  std::optional<int64_t> max_completion_length = 512;  ///< Most tokens of a completion.
  bool ds3_gather_for_generation = true;               ///< Accepted: for DeepSpeed.
  bool shuffle_dataset = true;  ///< Takes the prompts in a new order in every pass.
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;  ///< Rounds padded lengths up.
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
  /// 0: forward divergence, 1: reverse divergence, between: generalized Jensen–Shannon.
  double beta = 1.0;
  /// Accepted and not used: there are no tools.
  std::optional<int64_t> max_tool_calling_iterations = std::nullopt;
  /// Prints completions with every log, and writes them to output_dir/completions as Parquet.
  bool log_completions = false;
  /// How many completions are printed; unset: all.
  std::optional<int64_t> num_completions_to_print = std::nullopt;
  bool log_unique_prompts = false;  ///< Prints one completion of each prompt.

  /// The table of the fields that this struct adds.
  static std::span<const OptionRow<OnPolicyDistillationConfig>> own_options();
  /// As `TrainingArguments::resolved`, with trl's rules. Throws `Error` G-TRL-1 for values that
  /// contradict each other.
  OnPolicyDistillationConfig resolved() const;
  /// Every option by name, in order.
  nlohmann::ordered_json to_dict() const;
  /// From a dictionary with some or all options. Throws as `TrainingArguments::from_json`.
  static OnPolicyDistillationConfig from_json(const nlohmann::json& dict);
  /// The fields of `TrainingArguments`, with `bf16` decided.
  operator TrainingArguments() const;  // NOLINT: converts

  friend bool operator==(const OnPolicyDistillationConfig&, const OnPolicyDistillationConfig&);
};

/// The members of `TrainerOptions`, a teacher and an adapter.
///
/// `model` (a causal language model), `train_dataset` (rows with a column `prompt`) and
/// `processing_class` (a `Tokenizer`) are needed. What has no meaning for sampled completions is
/// not taken: `data_collator`, `model_init`, `compute_loss_func`, `compute_metrics` and
/// `preprocess_logits_for_metrics`.
struct OnPolicyDistillationTrainerOptions {
  using Arguments = OnPolicyDistillationConfig;  ///< Their type.
  using ScoreFunction = ComputeMetrics;          ///< Scores tensors.
#include <gradus/train/trainer_options_fields.inc>
  /// Trains an adapter on the model instead of the model. Its random numbers follow `args.seed`.
  std::optional<LoraConfig> peft_config = std::nullopt;
  /// Whose distribution the student learns; it has the same vocabulary. By default that of
  /// `args.teacher_model_name_or_path`. Needed.
  std::shared_ptr<Model> teacher_model = nullptr;
  /// Makes the completions in place of the model's own sampling.
  RolloutFunction rollout_func = nullptr;
};

/// On-policy distillation, trl's `DistillationTrainer`.
///
/// The student writes a completion of every prompt, and learns what the teacher would have thought
/// of each of its tokens: the loss is the generalized Jensen–Shannon divergence between the two
/// distributions.
/// `DistillationTrainer` is another one, for the research project of transformers. Completions of
/// the data in place of the student's come from `rollout_func`. Thread-safety: as `Trainer`.
class OnPolicyDistillationTrainer : public RolloutTrainer {
 public:
  /// Prepares the data and, with `peft_config`, the adapter; freezes the teacher. Throws `Error`
  /// G-TRL-1 for options that contradict each other and for a teacher with another vocabulary.
  explicit OnPolicyDistillationTrainer(OnPolicyDistillationTrainerOptions options);
  ~OnPolicyDistillationTrainer() override;

  /// As given and resolved.
  const OnPolicyDistillationConfig& distillation_args() const { return args_; }

 protected:
  void score(Scored& scored, MetricBatch& metrics) override;
  Loss compute_loss(Model& model, Batch inputs,
                    std::optional<torch::Tensor> num_items_in_batch) override;

 private:
  struct Prepared;
  OnPolicyDistillationTrainer(OnPolicyDistillationConfig args, Prepared prepared);
  static Prepared prepare(OnPolicyDistillationTrainerOptions options,
                          const OnPolicyDistillationConfig& args);
  torch::Tensor divergence(const torch::Tensor& student, const torch::Tensor& teacher) const;

  OnPolicyDistillationConfig args_;
  std::shared_ptr<Model> teacher_;  ///< Frozen.
};

}  // namespace gradus
