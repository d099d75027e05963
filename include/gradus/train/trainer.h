#pragma once

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

/// Where `train` starts.
class Resume {
 public:
  /// From the beginning.
  static Resume none() { return Resume(Kind::none, {}); }
  /// From the newest complete checkpoint in output_dir; from the beginning when there is none.
  static Resume last() { return Resume(Kind::last, {}); }
  /// From the newest checkpoint in output_dir; an error when there is none (HF's `True`).
  static Resume newest() { return Resume(Kind::newest, {}); }
  /// From this checkpoint, which must be complete.
  static Resume from(std::filesystem::path checkpoint) {
    return Resume(Kind::path, std::move(checkpoint));
  }
  /// The value of `--resume_from_checkpoint`: a path, "true", "false", "last".
  static Resume parse(const std::string& text);

  enum class Kind { none, last, newest, path };
  Kind kind() const { return kind_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  Resume(Kind kind, std::filesystem::path path) : kind_(kind), path_(std::move(path)) {}
  Kind kind_;
  std::filesystem::path path_;
};

struct TrainOutput {
  int64_t global_step = 0;
  double training_loss = 0;
  Metrics metrics;
};

/// A loss and the outputs it came from.
struct Loss {
  torch::Tensor loss;
  ModelOutput outputs = {};
};

/// What a trainer class says of its steps, so that the engine may run them faster.
struct StepTraits {
  /// A step does the same work on the device for every batch of one shape, and nothing on the host
  /// that matters: the device may replay a recording of it without calling the class's methods.
  bool recordable = false;
  /// Somebody looks at the logits of training steps, so the model must make them in full.
  bool reads_logits = true;
};

/// The Hugging Face Trainer: data, model and arguments in; training, evaluation, prediction and
/// checkpoints out.
///
/// Subclass it and override the protected methods, which are small and named as in transformers.
/// Thread-safety: use one Trainer from one thread.
class Trainer {
 public:
  explicit Trainer(TrainerOptions options);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains from the beginning of `state()`, or from a checkpoint. Called again it goes on with the
  /// model and the optimizer as they are (with `model_init`: new ones) and a new schedule. When it
  /// throws, what was being saved is on disk, `on_train_end` was called with the reason, and the
  /// Trainer can be used again.
  TrainOutput train(Resume resume = Resume::none());
  /// Works before `train()` too. `ignore_keys`: outputs that are no predictions; default: what the
  /// model says. Throws `Error` G-TRAIN-12 without data.
  virtual Metrics evaluate(EvalDatasets eval_dataset = {}, std::optional<Names> ignore_keys = {},
                           const std::string& metric_key_prefix = "eval");
  virtual PredictionOutput predict(DatasetRef test_dataset, std::optional<Names> ignore_keys = {},
                                   const std::string& metric_key_prefix = "test");
  virtual EvalLoopOutput evaluation_loop(const DataLoader& dataloader,
                                         const std::string& description,
                                         std::optional<bool> prediction_loss_only = {},
                                         std::optional<Names> ignore_keys = {},
                                         const std::string& metric_key_prefix = "eval");

  /// Weights, config, tokenizer and arguments; default: into output_dir.
  virtual void save_model(const std::filesystem::path& directory = {});
  /// trainer_state.json into output_dir.
  void save_state();
  /// Prints `***** split metrics *****` as a table.
  void log_metrics(const std::string& split, const Metrics& metrics) const;
  /// Writes `split_results.json` and, if `combined`, merges into all_results.json.
  void save_metrics(const std::string& split, const Metrics& metrics, bool combined = true) const;
  /// README.md of output_dir.
  void create_model_card() const;
  /// Returns when every checkpoint asked for is on disk; throws what went wrong with one.
  void wait_for_saves();

  /// Adds a callback, given as a `std::shared_ptr` to its own type. Throws `Error` G-TRAIN-9 for a
  /// null pointer.
  void add_callback(CallbackHandle callback);
  /// Removes the first callback of that name, or the object itself; null / false when it is not
  /// there.
  std::shared_ptr<TrainerCallback> pop_callback(const std::string& name);
  bool remove_callback(const std::shared_ptr<TrainerCallback>& callback);
  /// The first callback of type `T`, taken out; null when there is none.
  template <class T>
  std::shared_ptr<T> pop_callback() {
    for (const auto& callback : callbacks())
      if (auto found = std::dynamic_pointer_cast<T>(callback)) return remove_callback(found), found;
    return nullptr;
  }
  const std::vector<std::shared_ptr<TrainerCallback>>& callbacks() const;
  /// Calls `function(context, control)` at `event`, each time or at a cadence.
  void on(Event event, EventFunction function);
  void on(Event event, Every cadence, EventFunction function);

  // What the parts are right now.
  Model& model() const;
  std::shared_ptr<Model> model_ptr() const;
  const TrainingArguments& args() const;
  TrainingArguments& args();
  TrainerState& state();
  const TrainerState& state() const;
  TrainerControl& control();
  std::shared_ptr<Optimizer> optimizer() const;
  std::shared_ptr<LRScheduler> lr_scheduler() const;
  torch::Device device() const;
  bool is_in_train() const;
  bool is_world_process_zero() const;
  const Names& label_names() const;
  /// Losses replaced in the logs by `logging_nan_inf_filter` so far.
  int64_t filtered_losses() const;
  int64_t num_trainable_parameters() const;
  /// One per parameter group. Throws `Error` G-TRAIN-5 before the optimizer exists.
  std::vector<double> get_learning_rates() const;
  Names get_decay_parameter_names() const;

 protected:
  // Data.
  virtual DataLoader get_train_dataloader();
  virtual DataLoader get_eval_dataloader(const DatasetRef& eval_dataset);
  virtual DataLoader get_test_dataloader(const DatasetRef& test_dataset);
  /// What the default get_train_dataloader builds; change it and build a DataLoader of it.
  virtual DataLoaderOptions train_dataloader_options();
  virtual DataLoaderOptions eval_dataloader_options(const DatasetRef& eval_dataset);
  virtual std::shared_ptr<Sampler> get_train_sampler();
  /// Null except for train_sampling_strategy batch_rebalance; where it is not null, there is no
  /// train sampler.
  virtual std::shared_ptr<BatchSampler> get_train_batch_sampler();
  virtual std::shared_ptr<Sampler> get_eval_sampler(const DatasetRef& eval_dataset);

  // Optimizer and schedule.
  virtual void create_optimizer_and_scheduler(int64_t num_training_steps);
  virtual void create_optimizer();
  virtual void create_scheduler(int64_t num_training_steps);
  void set_optimizer(std::shared_ptr<Optimizer> optimizer);
  void set_lr_scheduler(std::shared_ptr<LRScheduler> lr_scheduler);

  // A step.
  virtual Loss compute_loss(Model& model, Batch inputs,
                            std::optional<torch::Tensor> num_items_in_batch);
  virtual torch::Tensor training_step(Model& model, Batch inputs,
                                      std::optional<torch::Tensor> num_items_in_batch);
  virtual PredictionStep prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                         const Names& ignore_keys);
  /// The model's forward under the run's precision.
  virtual ModelOutput run_model(Model& model, const Batch& inputs, bool training);
  virtual Batch prepare_inputs(Batch inputs) const;
  /// For how many rows the loss of a batch of `rows` counts in an evaluation.
  virtual int64_t rows_of_loss(int64_t rows) const { return rows; }
  /// While it lives, forwards run in the run's precision.
  device::AutocastGuard compute_loss_context_manager() const;
  virtual std::optional<torch::Tensor> get_num_items_in_batch(
      const std::vector<Batch>& window) const;
  virtual double floating_point_ops(const Batch& inputs) const;

  /// What this class promises about its steps. A class says so of itself alone: what derives from
  /// it may override anything and is asked anew, so guard an answer with `is_exactly`. The default
  /// promises for `Trainer` itself, and nothing for a class it does not know.
  virtual StepTraits step_traits() const;
  /// Whether this object is a `T` and not of a class derived from it.
  template <class T>
  bool is_exactly() const {
    return typeid(*this) == typeid(T);
  }

  /// What training_args.json holds: `args()`, and whatever a trainer with further arguments adds.
  virtual nlohmann::ordered_json arguments_to_save() const;

  /// Adds epoch and token counts, appends to log_history, calls on_log. `start_time` in seconds
  /// gives train speeds.
  virtual void log(Logs logs, std::optional<double> start_time = {});

  /// Whether compute_loss already divides by the whole accumulation window. Unset: decided as in
  /// HF.
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
  void count_micro_batch(const Batch& batch, const torch::Tensor& loss);
  void end_epoch();
  void act_on_control();
  void log_training();
  Metrics evaluate_in_training(bool step_scheduler);
  void save_checkpoint();
  void restore_run(const std::filesystem::path& checkpoint);
  void call(Event event, const Logs& logs = {}, const Metrics& metrics = {},
            const std::string& exception = {});

  std::unique_ptr<Parts> parts_;
};

}  // namespace gradus
