#pragma once

#include <gradus/train/hyperparameter_search.h>
#include <gradus/train/trainer_options.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>

namespace gradus {

struct RngState;
namespace device {
class AutocastGuard;
}

/// Where `train()` starts.
class Resume {
 public:
  /// At the beginning.
  static Resume none() { return Resume(Kind::none, {}); }
  /// At the newest complete checkpoint in output_dir; at the beginning when there is none.
  static Resume last() { return Resume(Kind::last, {}); }
  /// At the newest checkpoint in output_dir, as `True` in transformers. Without one `train()`
  /// throws `Error` G-CKPT-1.
  static Resume newest() { return Resume(Kind::newest, {}); }
  /// At this checkpoint. When it is not complete `train()` throws `Error` G-CKPT-3.
  static Resume from(std::filesystem::path checkpoint) {
    return Resume(Kind::path, std::move(checkpoint));
  }
  /// Reads a value of `--resume_from_checkpoint`: a path, "true", "false" or "last".
  static Resume parse(const std::string& text);

  /// The four ways to start.
  enum class Kind {
    none,    ///< At the beginning.
    last,    ///< At the newest complete checkpoint, if there is one.
    newest,  ///< At the newest checkpoint.
    path     ///< At a given checkpoint.
  };
  /// Which of the four it is.
  Kind kind() const { return kind_; }
  /// The checkpoint, for `Kind::path`.
  const std::filesystem::path& path() const { return path_; }

 private:
  Resume(Kind kind, std::filesystem::path path) : kind_(kind), path_(std::move(path)) {}
  Kind kind_;
  std::filesystem::path path_;
};

/// What `train()` returns.
struct TrainOutput {
  int64_t global_step = 0;   ///< Steps of the whole run.
  double training_loss = 0;  ///< Mean loss over the whole run.
  Metrics metrics;           ///< Run time, speeds, FLOPs and loss, as in train_results.json.
};

/// What `compute_loss` returns.
struct Loss {
  torch::Tensor loss;        ///< A scalar.
  ModelOutput outputs = {};  ///< The model's outputs it was computed from.
};

/// What a trainer class says of its steps, so that the engine may run them faster.
struct StepTraits {
  /// A step does the same work on the device for every batch of one shape, and nothing on the host
  /// that matters: the device may replay a recording of it without calling the class's methods.
  bool recordable = false;
  /// Somebody looks at the logits of training steps, so the model must make them in full.
  bool reads_logits = true;
  /// Why a step must not be recorded even where the user asks for it (`cuda_graphs=on`), in words
  /// for the log; empty when it may be.
  std::string plain_because = {};
};

/// The Trainer of transformers: it trains, evaluates, predicts and saves checkpoints.
///
/// Derive from it and override the protected methods, which are small and have the names of
/// transformers; docs/user/trainer.md shows how. Thread-safety: use a Trainer from one thread.
///
/// Started by torchrun, mpirun, srun or `gradus launch`, the same program trains in several
/// processes: each has its share of the rows, and `evaluate` and `predict` return the results of
/// all rows in every process. They must call the same functions in the same order. After an
/// exception in one of them the others throw `Error` G-DIST-2. docs/user/distributed.md says more.
class Trainer {
 public:
  /// Checks the options and adds the default callbacks. Throws `Error` G-TRAIN-8 for parts that
  /// contradict each other, and what `TrainingArguments::resolved` throws.
  explicit Trainer(TrainerOptions options);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains from the beginning or from a checkpoint. A second call continues with the same model
  /// and optimizer (with `model_init` with new ones) and a new schedule.
  ///
  /// When it throws, pending checkpoints are on disk, `on_train_end` was called with the reason,
  /// and the Trainer can be used again. Throws `Error` G-TRAIN-15 without training data, G-CKPT-7
  /// when another process trains into output_dir, and G-CKPT-6 when the last checkpoint or several
  /// in a row (`save_failures_allowed`) could not be saved.
  TrainOutput train(Resume resume = Resume::none());
  /// Trains `n_trials` times with parameters from a space and returns the best run, as
  /// transformers does with Optuna: a new model from `model_init` each time, the parameters put
  /// into `args()`, the objective reported at every evaluation, hopeless trials stopped there.
  /// Trial N writes to output_dir/run-N. A study in a file goes on where a killed process left it.
  /// The arguments of the last trial stay. Throws `Error` G-SEARCH-6 without `model_init` and in
  /// several processes, and G-SEARCH-5 when no trial was completed.
  BestRun hyperparameter_search(HyperparameterSearch search = {});
  /// Evaluates on `eval_dataset`, by default on that of the options, and logs the metrics. May be
  /// called before `train()`. `ignore_keys` are outputs that are not predictions, by default those
  /// that the model names. Throws `Error` G-TRAIN-12 without data.
  virtual Metrics evaluate(EvalDatasets eval_dataset = {}, std::optional<Names> ignore_keys = {},
                           const std::string& metric_key_prefix = "eval");
  /// Predicts. Metrics are computed when the data has labels.
  virtual PredictionOutput predict(DatasetRef test_dataset, std::optional<Names> ignore_keys = {},
                                   const std::string& metric_key_prefix = "test");
  /// The loop under `evaluate` and `predict`.
  virtual EvalLoopOutput evaluation_loop(const DataLoader& dataloader,
                                         const std::string& description,
                                         std::optional<bool> prediction_loss_only = {},
                                         std::optional<Names> ignore_keys = {},
                                         const std::string& metric_key_prefix = "eval");

  /// Writes weights, config, tokenizer and arguments, by default to output_dir.
  virtual void save_model(const std::filesystem::path& directory = {});
  /// Writes trainer_state.json to output_dir.
  void save_state();
  /// Prints the metrics as a table headed `***** split metrics *****`.
  void log_metrics(const std::string& split, const Metrics& metrics) const;
  /// Writes `split_results.json` and, if `combined`, merges into all_results.json.
  void save_metrics(const std::string& split, const Metrics& metrics, bool combined = true) const;
  /// Writes the model card, README.md, to output_dir.
  void create_model_card() const;
  /// Waits until every checkpoint is on disk. Throws the error of a failed write, unless a warning
  /// was all that came of it because the run went on.
  void wait_for_saves();

  /// Adds a callback after the others, given as a `std::shared_ptr` to its own type. Throws `Error`
  /// G-TRAIN-9 for a null pointer.
  void add_callback(CallbackHandle callback);
  /// Removes and returns the first callback of that name; null when there is none.
  std::shared_ptr<TrainerCallback> pop_callback(const std::string& name);
  /// Removes a callback. Returns whether it was there.
  bool remove_callback(const std::shared_ptr<TrainerCallback>& callback);
  /// Removes and returns the first callback of type `T`; null when there is none.
  template <class T>
  std::shared_ptr<T> pop_callback() {
    for (const auto& callback : callbacks())
      if (auto found = std::dynamic_pointer_cast<T>(callback)) return remove_callback(found), found;
    return nullptr;
  }
  /// All callbacks in order.
  const std::vector<std::shared_ptr<TrainerCallback>>& callbacks() const;
  /// Calls `function(context, control)` at every `event`.
  void on(Event event, EventFunction function);
  /// The same, only every so often: `trainer.on(Event::step_end, every(100), f)`.
  void on(Event event, Every cadence, EventFunction function);

  // The current parts.

  /// The model.
  Model& model() const;
  /// The model, shared.
  std::shared_ptr<Model> model_ptr() const;
  /// The arguments, resolved.
  const TrainingArguments& args() const;
  /// The arguments, to change them between runs.
  TrainingArguments& args();
  /// The progress of the run.
  TrainerState& state();
  /// The progress of the run.
  const TrainerState& state() const;
  /// What callbacks have asked for.
  TrainerControl& control();
  /// The optimizer; null before it is created.
  std::shared_ptr<Optimizer> optimizer() const;
  /// The schedule; null before it is created.
  std::shared_ptr<LRScheduler> lr_scheduler() const;
  /// Where the model runs.
  torch::Device device() const;
  /// Whether `train()` is running.
  bool is_in_train() const;
  /// Whether this is the first of all processes.
  bool is_world_process_zero() const;
  /// Whether this is the first process of its machine.
  bool is_local_process_zero() const;
  /// The number of processes that train together.
  int64_t world_size() const;
  /// The columns that are labels.
  const Names& label_names() const;
  /// Number of losses that `logging_nan_inf_filter` has replaced in the logs.
  int64_t filtered_losses() const;
  /// Number of values that require a gradient.
  int64_t num_trainable_parameters() const;
  /// The learning rates, one per parameter group. Throws `Error` G-TRAIN-5 before the optimizer
  /// exists.
  std::vector<double> get_learning_rates() const;
  /// Names of the parameters with weight decay.
  Names get_decay_parameter_names() const;

 protected:
  // Data.

  /// The loader of training batches.
  virtual DataLoader get_train_dataloader();
  /// The loader of an evaluation.
  virtual DataLoader get_eval_dataloader(const DatasetRef& eval_dataset);
  /// The loader of a prediction.
  virtual DataLoader get_test_dataloader(const DatasetRef& test_dataset);
  /// The options from which `get_train_dataloader` builds its loader.
  virtual DataLoaderOptions train_dataloader_options();
  /// The options from which the other loaders are built.
  virtual DataLoaderOptions eval_dataloader_options(const DatasetRef& eval_dataset);
  /// The order of training rows; null for sequential.
  virtual std::shared_ptr<Sampler> get_train_sampler();
  /// Chooses whole batches; null unless train_sampling_strategy is batch_rebalance. It replaces the
  /// train sampler.
  virtual std::shared_ptr<BatchSampler> get_train_batch_sampler();
  /// The order of evaluation rows; null for sequential.
  virtual std::shared_ptr<Sampler> get_eval_sampler(const DatasetRef& eval_dataset);

  // Optimizer and schedule.

  /// Creates both.
  virtual void create_optimizer_and_scheduler(int64_t num_training_steps);
  /// Creates the optimizer unless there is one; calls `set_optimizer`.
  virtual void create_optimizer();
  /// Creates the schedule unless there is one; calls `set_lr_scheduler`.
  virtual void create_scheduler(int64_t num_training_steps);
  /// Sets the optimizer.
  void set_optimizer(std::shared_ptr<Optimizer> optimizer);
  /// Sets the schedule.
  void set_lr_scheduler(std::shared_ptr<LRScheduler> lr_scheduler);

  // A step.

  /// The loss of a batch. `num_items_in_batch` is the number of labels in the whole accumulation
  /// window, when it is known.
  virtual Loss compute_loss(Model& model, Batch inputs,
                            std::optional<torch::Tensor> num_items_in_batch);
  /// Forward and backward of one batch. Returns the loss, detached.
  virtual torch::Tensor training_step(Model& model, Batch inputs,
                                      std::optional<torch::Tensor> num_items_in_batch);
  /// Loss, outputs and labels of one batch of an evaluation.
  virtual PredictionStep prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                         const Names& ignore_keys);
  /// Calls the model. Outputs in half precision become float32.
  virtual ModelOutput run_model(Model& model, const Batch& inputs, bool training);
  /// What the calls of `run_model` for the batch under way ask of the model.
  ForwardOptions& forward_options();
  /// What the host does with a batch before it goes to a GPU. A replay of a recorded step does not
  /// call methods for the batch, but this one comes before. By default it notes full masks
  /// (`remember_full_masks`); it may pad a batch, so that few shapes are recorded.
  virtual Batch batch_for_gpu(Batch inputs) const;
  /// Moves a batch to the device. Throws `Error` G-TRAIN-11 for an empty batch.
  virtual Batch prepare_inputs(Batch inputs) const;
  /// How many rows the loss of a batch counts for in an evaluation.
  virtual int64_t rows_of_loss(int64_t rows) const { return rows; }
  /// Forward passes use the precision of the run while the returned object lives.
  device::AutocastGuard compute_loss_context_manager() const;
  /// Number of labels in an accumulation window; unset when nothing uses it.
  virtual std::optional<torch::Tensor> get_num_items_in_batch(
      const std::vector<Batch>& window) const;
  /// Floating-point operations of forward and backward for a batch.
  virtual double floating_point_ops(const Batch& inputs) const;

  /// What this class promises about its steps. A class speaks only for itself: a derived class may
  /// override anything, so guard an answer with `is_exactly`. The default answers for `Trainer`,
  /// and promises nothing for other classes.
  virtual StepTraits step_traits() const;
  /// Whether this object is a `T` and not of a class derived from it.
  template <class T>
  bool is_exactly() const {
    return typeid(*this) == typeid(T);
  }

  /// The content of training_args.json: `args()` and further arguments of a derived trainer.
  virtual nlohmann::ordered_json arguments_to_save() const;

  /// Logs values: adds epoch and token counts, appends to log_history and calls `on_log`. With
  /// `start_time`, in seconds, it adds training speeds.
  virtual void log(Logs logs, std::optional<double> start_time = {});

  /// Whether `compute_loss` already divides by the whole accumulation window. Unset decides it as
  /// transformers does.
  std::optional<bool> loss_is_scaled_for_ga;

 private:
  struct Run;
  struct Parts;

  std::filesystem::path prepare_training(const Resume& resume);
  TrainOutput training_loop(const std::filesystem::path& checkpoint);
  void begin_run(const std::filesystem::path& checkpoint);
  TrainOutput finish_run();
  void end_failed_run(const std::string& reason);
  torch::Tensor run_micro_batch(const Batch& batch,
                                const std::optional<torch::Tensor>& num_items_in_batch);
  void end_epoch();
  bool begin_steps();
  void act_on_control();
  void finish_saves();
  void log_training();
  std::optional<Metrics> evaluate_in_training(bool step_scheduler);
  void save_checkpoint();
  void restore_run(const std::filesystem::path& checkpoint);
  void call(Event event, const Logs& logs = {}, const Metrics& metrics = {},
            const std::string& exception = {});

  std::unique_ptr<Parts> parts_;
};

}  // namespace gradus
