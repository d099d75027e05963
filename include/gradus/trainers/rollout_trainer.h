#pragma once

#include <gradus/models/generation_config.h>
#include <gradus/models/lora_config.h>
#include <gradus/trainers/rewards.h>
#include <gradus/trainers/trl_trainer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

struct Advantages;
class ReferencePolicy;
class Tokenizer;

/// Completions of a generation batch, in the order of its rows.
struct Rollouts {
  std::vector<std::vector<int64_t>> prompt_ids = {};  ///< Tokens of each prompt.
  std::vector<std::vector<int64_t>> completion_ids =
      {};  ///< With the end token, if it was written.
  /// The log probability of each token when it was drawn; empty when it is not known.
  std::vector<std::vector<double>> logprobs = {};
  /// Further values for each completion, which reward functions see as columns.
  std::map<std::string, std::vector<Value>> columns = {};
};

/// Makes the completions in place of the model's own sampling: one for each row it is given. The
/// rows of one prompt come one after the other, `num_generations` times.
using RolloutFunction = std::function<Rollouts(const std::vector<Example>& rows, Trainer& trainer)>;

/// How completions are made, of the arguments of a trainer.
struct RolloutSettings {
  std::string trainer;                ///< Its name, for messages.
  int64_t num_generations = 1;        ///< Completions of a prompt in training.
  int64_t num_generations_eval = 1;   ///< The same in evaluations.
  int64_t generation_batch_size = 1;  ///< Completions of a generation batch, of all processes.
  int64_t steps_per_generation = 1;   ///< Batches that it is cut into.
  int64_t num_iterations = 1;         ///< How often it is trained on.
  std::optional<int64_t> max_completion_length = {};  ///< Most new tokens.
  bool shuffle_dataset = true;                        ///< A new order of the prompts in every pass.
  std::optional<int64_t> pad_to_multiple_of = {};     ///< Rounds padded lengths up.
  bool mask_truncated_completions = false;  ///< Completions without end do not count in the loss.
  double temperature = 1;                   ///< Logits are divided by it, also in the loss.
  GenerationOptions generation = {};        ///< How tokens are drawn.
  nlohmann::json chat_template_kwargs = nullptr;  ///< Variables of the chat template.
  bool only_prompts = false;     ///< Rewards see no other columns (`remove_unused_columns`).
  bool disable_dropout = false;  ///< Nothing is dropped, also in training.
  bool log_completions = false;  ///< Prints completions and writes them as Parquet.
  std::optional<int64_t> num_completions_to_print = {};  ///< Unset: all.
  bool log_unique_prompts = false;                       ///< Prints one completion of each prompt.
};

/// What a `RolloutTrainer` is built from.
struct RolloutOptions {
  TrainerOptions trainer = {};              ///< Model, data and arguments; all common ones.
  RolloutSettings settings = {};            ///< How completions are made.
  std::vector<Reward> rewards = {};         ///< May be empty.
  std::vector<double> reward_weights = {};  ///< One for each reward.
  /// The tokenizers of reward models, one for each reward; null for functions.
  std::vector<std::shared_ptr<Tokenizer>> reward_tokenizers = {};
  RolloutFunction rollout_func = nullptr;  ///< Replaces the model's own sampling.
  /// What the divergence is measured from; null without one.
  std::shared_ptr<const ReferencePolicy> reference = nullptr;
};

/// The common part of trainers that learn from completions of the model they train: GRPO, RLOO and
/// on-policy distillation.
///
/// The loader brings the prompts of a whole generation batch. Completions are sampled once, scored,
/// shuffled and cut into `steps_per_generation` batches, which are kept and trained on
/// `num_iterations` times. Checkpoints keep what is left of them, so that a resumed run goes on
/// with the same completions. A derived class says what is computed for a generation batch
/// (`score`) and what the loss of a batch is (`compute_loss`). Thread-safety: as `Trainer`.
class RolloutTrainer : public TrlTrainer {
 public:
  ~RolloutTrainer() override;

  /// As `TrlTrainer::evaluation_loop`; counts the batches.
  EvalLoopOutput evaluation_loop(const DataLoader& dataloader, const std::string& description,
                                 std::optional<bool> prediction_loss_only = {},
                                 std::optional<Names> ignore_keys = {},
                                 const std::string& metric_key_prefix = "eval") override;

 protected:
  /// A generation batch on its way to the loss.
  struct Scored {
    const std::vector<Example>& rows;  ///< What the completions were made for.
    const Rollouts& rollouts;          ///< The completions.
    /// prompt_ids and prompt_mask (padded on the left), completion_ids and completion_mask (on the
    /// right). What `score` adds is cut into batches with them, scalars excepted.
    Batch batch;
    torch::Tensor advantages = {};  ///< (rows) of this process, for the table of completions.
    bool training = true;           ///< Or an evaluation.
  };

  /// Checks the options and prepares the tokenizer. `arguments` are all of the trainer's. Throws
  /// `Error` G-TRL-1 for options that contradict each other.
  RolloutTrainer(RolloutOptions options, nlohmann::ordered_json arguments);

  /// Adds what the loss needs: rewards, advantages, log probabilities of other policies.
  virtual void score(Scored& scored, MetricBatch& metrics) = 0;

  /// The rewards of the completions of all processes (completions, rewards): NaN where a reward
  /// does not apply. Notes their means and deviations. Throws `Error` G-RWD-1 for a function that
  /// gives too few or too many.
  torch::Tensor rewards_of(Scored& scored, MetricBatch& metrics);
  /// The weighted sum of the rewards of each completion, without those that do not apply; NaN where
  /// none does.
  torch::Tensor total_of(const torch::Tensor& rewards) const;
  /// Completions of a prompt.
  int64_t group_size(const Scored& scored) const;
  /// The traits of a step: its metrics are read on the host, so that it is never recorded.
  static StepTraits plain_step(bool reads_logits);
  /// Takes the advantages of all processes, made from `totals`: this one's go into the batch. Notes
  /// the mean and the deviation of `totals`, and how many groups have the same reward throughout.
  void set_advantages(Scored& scored, const torch::Tensor& totals, const Advantages& advantages,
                      MetricBatch& metrics) const;
  /// Values of the completions' tokens (rows, tokens) in float32; 0 where the mask is.
  struct TokenValues {
    torch::Tensor log_probs;  ///< Log probabilities.
    torch::Tensor entropy;    ///< Entropies of what could have come, in nats.
  };
  /// Runs the model on a batch. `with_entropy_gradient` keeps the graph of the entropies, too.
  TokenValues token_values(Model& model, const Batch& batch, bool with_entropy_gradient = false);
  /// The same by another policy, without gradients.
  torch::Tensor log_probs_by(const ReferencePolicy& reference, const Batch& batch);
  /// The log probabilities by the model, without gradients, in batches of the usual size.
  torch::Tensor log_probs_of(const Scored& scored);
  /// The same by the reference, which there must be.
  torch::Tensor reference_log_probs_of(const Scored& scored);
  /// Whether there is a reference.
  bool has_reference() const;
  /// Whether the model has changed between drawing completions and training on the last of them.
  bool completions_get_old() const;

  /// `values` of all processes, one after the other.
  torch::Tensor gathered(const torch::Tensor& values) const;
  /// The part of `values`, of all processes, that belongs to this one.
  torch::Tensor own_part(const torch::Tensor& values) const;
  /// Notes the mean of `values` (rows, tokens) under the mask, over all processes; values with one
  /// column have one for each row, which the mask does not concern.
  void note_mean(MetricBatch& metrics, const std::string& name, const torch::Tensor& values,
                 const torch::Tensor& mask) const;
  /// Notes a scalar that is the same in all processes; NaN does not count.
  void note(MetricBatch& metrics, const std::string& name, const torch::Tensor& value) const;
  using TrlTrainer::note;
  /// Batches of the accumulation window under way; 1 in evaluations.
  int64_t window() const;
  /// Whether the batch under way is the last one of its window.
  bool ends_window() const;
  /// What else checkpoints keep.
  virtual StateTree own_state() const { return {}; }
  /// Takes it back.
  virtual void load_own_state(const StateTree&) {}
  /// How completions are made.
  const RolloutSettings& settings() const;
  /// The weights of the rewards, in order.
  const std::vector<double>& reward_weights() const;
  /// The names of the rewards, in order.
  std::vector<std::string> reward_func_names() const;

  // See Trainer.
  torch::Tensor training_step(Model& model, Batch inputs,
                              std::optional<torch::Tensor> num_items_in_batch) override;
  PredictionStep prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                 const Names& ignore_keys) override;
  DataLoader get_train_dataloader() override;
  DataLoaderOptions train_dataloader_options() override;
  DataLoaderOptions eval_dataloader_options(const DatasetRef& eval_dataset) override;
  std::shared_ptr<Sampler> get_train_sampler() override;
  std::shared_ptr<Sampler> get_eval_sampler(const DatasetRef& eval_dataset) override;
  std::optional<torch::Tensor> get_num_items_in_batch(
      const std::vector<Batch>& window) const override;
  /// As in trl: each batch counts for as many rows as a full one has, and the last one for the
  /// prompts that would be left if each had one completion.
  int64_t rows_of_loss(int64_t rows) const override;
  /// 0, as in trl: the rows that the loader brings have no tokens yet.
  double floating_point_ops(const Batch& inputs) const override;
  void log(Logs logs, std::optional<double> start_time = {}) override;

 private:
  struct Rolling;
  Batch make_batch(const Batch& loaded, const DatasetRef& rows, bool training);
  Batch next_batch(const Batch& loaded);
  void add_to_table(const Scored& scored);
  /// `log_probs` of the batches of the usual size that `scored` is cut into, joined.
  torch::Tensor in_batches(const Scored& scored,
                           const std::function<torch::Tensor(const Batch&)>& log_probs) const;

  std::unique_ptr<Rolling> rolling_;
};

}  // namespace gradus
