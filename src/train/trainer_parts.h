#pragma once

#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/core/error.h>
#include <gradus/device/gpu.h>
#include <gradus/optim/grad_scaler.h>
#include <gradus/optim/master_weights.h>
#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedulers.h>
#include <gradus/train/plan.h>
#include <gradus/train/trainer.h>

#include "engine/eval_graphs.h"
#include "train/debug_underflow_overflow.h"
#include "train/device_schedule.h"
#include "train/folded_clipping.h"
#include "train/label_smoother.h"
#include "train/loss_meter.h"
#include "train/memory_tracker.h"
#include "train/step_graphs.h"

namespace gradus {

/// What a Trainer is made of. Private to src/train/trainer*.cpp.
struct Trainer::Parts {
  Parts(TrainingArguments resolved, torch::Device on)
      : args(std::move(resolved)), device(on), memory(!args.skip_memory_metrics, on) {}

  TrainingArguments args;
  torch::Device device;
  std::shared_ptr<Model> model;
  std::function<std::shared_ptr<Model>()> model_init;
  DataCollator collator;
  DatasetRef train_dataset;
  EvalDatasets eval_dataset;
  std::shared_ptr<TokenizerLike> processing_class;
  ComputeLossFunction compute_loss_func;
  ComputeMetrics compute_metrics;
  OptimizerFactory optimizer_factory;
  PreprocessLogits preprocess_logits;

  std::vector<std::shared_ptr<TrainerCallback>> callbacks;
  TrainerState state;
  TrainerControl control;

  std::shared_ptr<Optimizer> optimizer;
  std::shared_ptr<LRScheduler> lr_scheduler;
  bool created_lr_scheduler = false;  ///< by us: made anew at every train()
  std::optional<GradScaler> scaler;   ///< fp16
  torch::ScalarType autocast_dtype = torch::kFloat;
  std::vector<torch::Tensor> parameters;  ///< those whose gradients are clipped
  std::vector<torch::Tensor> bystanders;  ///< parameters of the model that get gradients although
                                          ///< the optimizer does not have them
  std::unique_ptr<DebugUnderflowOverflow> debug;  ///< --debug underflow_overflow

  // What a run on a GPU adds; all of it lives from begin_run to the end of train().
  std::unique_ptr<device::Scope> stream;   ///< work can be recorded only on a stream of its own
  std::unique_ptr<MasterWeights> masters;  ///< bf16_mode=master: the model is bfloat16 meanwhile
  std::unique_ptr<StepGraphs> graphs;
  std::unique_ptr<EvalGraphs> eval_graphs;
  std::unique_ptr<DeviceSchedule>
      device_schedule;  ///< where a step may be skipped or replayed without the host
  std::optional<torch::Tensor> replayed_norm;  ///< set from the replay of a whole step to its end:
                                               ///< clipping and the optimizer are done
  FoldedClipping clipping;
  std::string
      attention_backend;  ///< chosen by measurement, or the checkpoint's; empty: torch's own choice
  bool attention_is_chosen = false;

  Names label_names;
  bool model_accepts_loss_kwargs = false;
  std::optional<LabelSmoother> label_smoother;
  ForwardOptions forward;  ///< of the compute_loss call under way

  int64_t train_batch_size = 8;
  int64_t current_window = 1;  ///< micro-batches of the window under way
  double current_flos = 0;     ///< not yet in state.total_flos
  int64_t filtered_losses = 0;
  bool is_in_train = false;
  bool model_prepared = false;
  std::optional<double> model_preparation_time;
  int64_t initial_num_input_tokens_seen = 0;

  DataLoader train_loader;
  DataLoader eval_loader;
  CheckpointWriter writer;
  RngState foreign_rng;  ///< Python's generators, carried through from the checkpoint resumed from
  MemoryTracker memory;

  /// float32 where nothing is to be cast on the way.
  torch::ScalarType cast_to() const { return masters ? torch::kFloat : autocast_dtype; }

  /// Puts the model where and as an evaluation wants it.
  void begin_evaluation();

  /// Of the model as it is now; usually none.
  std::vector<torch::Tensor> find_bystanders() const;
  /// The model's trainable parameters in its order, which decides the last bit of the norm, then
  /// what else the optimizer has.
  std::vector<torch::Tensor> find_clipped() const;
  /// Drops the gradients of the whole model, as HF does.
  void zero_grad();
  /// What HF adds to every log, and so to the metrics that evaluate() and train() return.
  void add_counts(Metrics& metrics) const;
  /// Brings state.stateful_callbacks up to date.
  void export_callback_states();

  void store_flos() {
    state.total_flos += current_flos;
    current_flos = 0;
  }
};

/// One call of train(): from the first step it does to the last.
struct Trainer::Run {
  explicit Run(torch::Device device) : loss(device) {}

  TrainingPlan plan;
  DataLoader loader;
  double start_time = 0;
  LossMeter loss;
  double total_loss = 0;  ///< of all steps of the run, those before a resume included
  int64_t loss_from_step =
      0;  ///< the step `total_loss` counts from: not 0 after a resume from Python's checkpoint
  int64_t last_logged_step = 0;
  int64_t initial_global_step = 0;

  // Where to begin: pass, batches of it already done, and the loader's own state.
  int64_t first_epoch = 0;
  int64_t skip_batches = 0;
  nlohmann::json loader_state;
  bool ended_by_callback =
      false;  ///< the checkpoint resumed from was the last of a run that a callback had stopped
  std::optional<RngState> rng;  ///< set before the first step after a resume

  // The pass under way.
  int64_t epoch = 0;
  int64_t batches_done = 0;  ///< of this pass
  bool at_epoch_end = false;
  std::optional<BatchIterator> batches;
  std::optional<torch::Tensor> grad_norm;
  std::optional<double> learning_rate;

  /// What gradus_state.json holds: all that a resume needs beyond HF's files. Waits for the device.
  nlohmann::json saved_state(const Parts& parts) const;
  /// Takes it over; whether the pass it was saved in had ended. Throws nlohmann's exceptions where
  /// it lacks something.
  bool restore_saved_state(const nlohmann::json& saved, Parts& parts);

  /// Whether the micro-batches so far end with a full window, or the pass with a short one.
  bool window_is_complete(int64_t window) const { return is_window_end(batches_done, window); }
  /// Whether they will with the one under way.
  bool window_will_be_complete(int64_t window) const {
    return is_window_end(batches_done + 1, window);
  }

 private:
  bool is_window_end(int64_t batches, int64_t window) const {
    return batches % window == 0 || batches == plan.steps_in_epoch;
  }
};

/// The model that `model_init` makes. Throws G-TRAIN-8 when it makes none.
std::shared_ptr<Model> make_initial_model(
    const std::function<std::shared_ptr<Model>()>& model_init);
/// Whether a signal asked for the end of the run.
bool is_interrupted(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks);
/// "eval_" + metric_for_best_model.
std::string best_metric_key(const TrainingArguments& args);
/// Takes one number from the CPU's generator, as Python's DataLoader does for its workers whenever
/// a pass over it begins. Nothing uses it; without, dropout would draw other masks than in Python.
void draw_as_a_loader_does();
/// What ran out of memory, how much the run held, and what to change.
Error out_of_memory_error(torch::Device device, const std::string& what);
/// Seconds since the epoch.
double wall_clock();
/// {split}_runtime and, where given, the rates, rounded as HF does.
Metrics speed_metrics(const std::string& split, double start_time, std::optional<double> samples,
                      std::optional<double> steps, std::optional<double> tokens = {});

}  // namespace gradus
