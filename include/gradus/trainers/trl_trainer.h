#pragma once

#include <gradus/config/trainer_arguments.h>
#include <gradus/train/trainer.h>

#include <functional>
#include <memory>
#include <string>

namespace gradus {

class MetricBatch;
class MetricLog;
class ProcessGroup;
struct TokenScoreOptions;
struct TokenScores;

/// Where the defaults of trl's trainers differ from those of transformers.
struct TrlDefaults : TrainingDefaults {
  /// More often than every 500 steps.
  static StepsOrRatio logging_steps() { return 10; }
  /// On: sequences are long.
  static bool gradient_checkpointing() { return true; }
  /// Unset: true unless fp16 is on.
  static std::optional<bool> bf16() { return std::nullopt; }
};

/// What trl's trainers have in common: data sets that only their own collator reads, a loss for
/// batches without labels, and metrics that are averaged from one log to the next, over all
/// processes.
///
/// A trainer of this family derives from it, prepares its data in the constructor and overrides
/// `compute_loss`. Thread-safety: as `Trainer`.
class TrlTrainer : public Trainer {
 public:
  ~TrlTrainer() override;

  /// As `Trainer::evaluate`. A set that is given here is prepared as those of the constructor are.
  Metrics evaluate(EvalDatasets eval_dataset = {}, std::optional<Names> ignore_keys = {},
                   const std::string& metric_key_prefix = "eval") override;
  /// As `Trainer::evaluation_loop`; the metrics of an evaluation have those of its batches.
  EvalLoopOutput evaluation_loop(const DataLoader& dataloader, const std::string& description,
                                 std::optional<bool> prediction_loss_only = {},
                                 std::optional<Names> ignore_keys = {},
                                 const std::string& metric_key_prefix = "eval") override;

 protected:
  /// Makes the rows of a set those that the collator reads; leaves rows that are so already. The
  /// name of the set is for messages.
  using PrepareRows = std::function<DatasetRef(const DatasetRef& rows, const std::string& name)>;

  /// `options` have prepared data and the collator. `arguments` are all of the trainer's, for
  /// training_args.json.
  TrlTrainer(TrainerOptions options, nlohmann::ordered_json arguments);

  /// From now on `evaluate` prepares the sets it is given.
  void set_prepare_rows(PrepareRows prepare) { prepare_rows_ = std::move(prepare); }
  /// Replaces all data by what `compute` makes of it, for columns that are computed once the
  /// trainer is there.
  void compute_columns(const PrepareRows& compute);
  /// The collator of the options.
  const DataCollator& collator() const { return collator_; }

  /// Takes note of the metrics of a batch; they are in the next log. Whether the batch is one of
  /// training the model's mode says.
  void note(const MetricBatch& batch, bool training);
  /// Runs the model. Where nobody reads its logits (`ForwardOptions::need_logits`), it may give
  /// scores of `labels` (rows, tokens) in their place, as `TokenScoring` says.
  ModelOutput run_for_scores(Model& model, const Batch& inputs, const torch::Tensor& labels,
                             double temperature);
  /// The same, and the scores either way; `outputs` get what the model gave.
  TokenScores score_by_model(Model& model, const Batch& inputs, const torch::Tensor& labels,
                             const TokenScoreOptions& options, ModelOutput& outputs);
  /// The processes that train together; null for a single one.
  const std::shared_ptr<ProcessGroup>& processes() const { return group_; }
  /// The mean of a value over all processes; over those that count in a last batch that is not
  /// full.
  torch::Tensor mean_over_processes(const torch::Tensor& value) const;

  /// As `Trainer`'s. Batches of training whose padding is all on the right are padded to few
  /// lengths, and the batch knows about it.
  Batch batch_for_gpu(Batch inputs) const override;
  /// As `Trainer`'s; log probabilities and other numbers stay float32, whatever the model computes
  /// in.
  Batch prepare_inputs(Batch inputs) const override;
  /// A batch without labels has a loss all the same.
  PredictionStep prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                 const Names& ignore_keys) override;
  /// Adds the metrics since the last log.
  void log(Logs logs, std::optional<double> start_time = {}) override;
  /// As `Trainer`'s; takes note of where a pass ends.
  DataLoader get_train_dataloader() override;
  /// Uses `train_dataset()`.
  DataLoaderOptions train_dataloader_options() override;
  nlohmann::ordered_json arguments_to_save() const override;

 private:
  /// Whether a single set is one of this trainer's own.
  bool is_prepared(const EvalDatasets& set) const;
  /// Pads a batch for `batch_for_gpu`; the names of its columns begin with `prefix`.
  void pad_to_few_lengths(Batch& inputs, const std::string& prefix) const;
  /// The end of a pass over a loader.
  struct LastBatch {
    int64_t batches_left = 0;  ///< Before it, and itself.
    int64_t processes = 0;     ///< How many have rows of their own in it; 0: all.
  };
  LastBatch last_batch_of(const DataLoader& loader) const;
  /// Whether the batch under way is in the last accumulation window of a pass of training.
  bool is_in_last_window() const;
  /// How many processes count in the batch under way; 0: all.
  int64_t processes_that_count(bool training) const;

  nlohmann::ordered_json arguments_;
  DataCollator collator_;
  int64_t pad_token_id_ = 0;
  DatasetRef train_dataset_;
  EvalDatasets eval_dataset_;
  PrepareRows prepare_rows_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<MetricLog> metrics_;
  LastBatch last_batch_;      ///< Of the evaluation under way.
  LastBatch training_batch_;  ///< Of training, before its first batch.
};

}  // namespace gradus
