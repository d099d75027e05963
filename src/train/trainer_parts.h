#pragma once

#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/core/error.h>
#include <gradus/engine/run_checkpoint.h>
#include <gradus/engine/step_engine.h>
#include <gradus/formats/rng_state.h>
#include <gradus/kernels/fp8.h>
#include <gradus/models/model_folder.h>
#include <gradus/train/plan.h>
#include <gradus/train/trainer.h>

#include <set>

#include "train/callback_list.h"
#include "train/debug_underflow_overflow.h"
#include "train/elastic_order.h"
#include "train/kept_state.h"
#include "train/label_smoother.h"
#include "train/loss_meter.h"
#include "train/loss_watch.h"
#include "train/memory_tracker.h"
#include "train/processes.h"
#include "train/resume.h"
#include "train/run_monitor.h"

namespace gradus {

class StagedFolder;
struct SearchRun;
struct ShardOfRun;

/// What a Trainer is made of: the options it was given, resolved, and what it made of them.
/// Private to src/train/trainer*.cpp.
struct Trainer::Parts : TrainerOptions {
  Parts(TrainerOptions given, torch::Device device);

  Processes processes;  ///< that train together
  StepEngine engine;    ///< has the optimizer, the schedule and the precision too
  CallbackList callbacks;
  TrainerState state;
  TrainerControl control;
  SearchRun* search = nullptr;  ///< the hyperparameter search that calls train()
  std::unique_ptr<Run> run;     ///< the call of train() under way, or the last one

  Names label_names;
  std::optional<LabelSmoother> label_smoother;
  std::unique_ptr<DebugUnderflowOverflow> debug;  ///< --debug underflow_overflow
  ForwardOptions forward;                         ///< of the compute_loss call under way

  int64_t train_batch_size = 8;
  bool created_lr_scheduler = false;  ///< by us: made anew at every train()
  bool is_in_train = false;
  struct {
    bool is_done = false;
    std::optional<double> seconds;  ///< that an evaluation has taken for it
  } preparation;                    ///< of the model: it is where it trains

  DataLoader train_loader;
  struct {
    DataLoader loader;                 ///< of the last one
    std::set<std::string> have_begun;  ///< the prefixes of those whose workers stay
  } evaluations;
  CheckpointWriter writer;
  RngState foreign_rng;  ///< Python's generators, carried through from the checkpoint resumed from
  MemoryTracker memory;

  /// Whether the processes agree on what callbacks have asked for at `event`.
  bool agrees_after(Event event) const;
  /// Whether Python's loader would start its workers now for an evaluation. With persistent workers
  /// it does so once for each set of data, also when the run goes on in another process.
  bool starts_workers(const DataLoader& loader, const std::string& metric_key_prefix);
  /// Puts the model where and as an evaluation wants it.
  void begin_evaluation();
  /// What transformers adds to every log, and so to the metrics that evaluate() and train() return.
  void add_counts(Metrics& metrics) const;
  /// What is saved of the model: weights, config, tokenizer and `arguments`.
  ModelFolder model_folder(nlohmann::ordered_json arguments) const;
  /// Brings state.stateful_callbacks up to date.
  void export_callback_states();
  /// The optimizer's state with the callbacks' tensors.
  StateTree optimizer_state() const;
  /// What this process holds of a sharded model, copied into `buffers`.
  ShardOfRun shard_of_run(SnapshotBuffers& buffers) const;
  /// Makes a folder in which all processes write a checkpoint: held by the first process, its path
  /// known to all. Empty where it cannot be made.
  std::shared_ptr<StagedFolder> shared_folder(std::filesystem::path& path) const;
  /// Takes over what process 0 knows of the best checkpoint: only it knows whether it was written.
  void agree_on_best();
  /// The states of all random generators now.
  RngState random_state() const;
  /// Takes note of how a save has ended, if one has. A checkpoint that was not written is not the
  /// best one either. Throws `Error` G-CKPT-6 when `save_failures_allowed` in a row have failed.
  void note_save(const std::optional<CheckpointWriter::Outcome>& outcome);
  /// What the warning about a save that fails now says of the run.
  std::string what_a_failed_save_means() const;
  /// Takes note of a micro-batch of `flos` operations that gave `loss`.
  void count_micro_batch(const Batch& batch, const torch::Tensor& loss, double flos);
  /// This process's rows of a batch that all share (`elastic_order`).
  Batch own_rows(const Batch& batch, const std::optional<torch::Tensor>& num_items_in_batch);
  /// Whether the loss of the model is divided by `num_items_in_batch`: not all that take it do so.
  bool model_divides_loss(const Batch& batch);
  /// How many tokens a batch has, as `include_num_input_tokens_seen` counts them.
  int64_t count_input_tokens(const Batch& batch) const;
  /// Brings the schedule on the host, and the learning rate to log, to where the device is.
  void settle_schedule();
  /// Whether the run trains float32 masters of a bfloat16 model.
  bool wants_masters() const;
  /// Whether most weights are frozen and in host memory, from where a run takes them to the GPU as
  /// bfloat16: their float32 values are never there.
  bool frozen_weights_wait() const;
  /// Takes the model to the device, without frozen weights that wait.
  void place_model();
  /// Looks at the losses since the last look, when that is due. Whether the run has gone back to
  /// the state that was kept: the pass begins anew from there.
  bool look_for_spikes();
  /// The same at the end of data whose length was not known.
  bool look_at_end_of_data();
  /// The gradient norm of the step under way, after clipping, where something is done about one
  /// that is not finite.
  std::optional<torch::Tensor> watched_norm();
  /// Whether the update of the step under way is left out (`spike_action` skip).
  bool skips_update();
  /// Whether the window that was just fetched is left out after a return; it then counts as done.
  bool leaves_out_step();
  /// Tells the monitor what a log says, and how busy the GPU is.
  void watch_log(const Logs& logs);
  /// Tells it how long a save has waited since `began` for the one before, and what the disk has.
  void watch_save(double began);
  /// Keeps the state of the run after a look (`spike_action` rollback).
  void keep_state();
  /// A look that is due.
  bool look_now();
  /// Whether so many steps before this spike were left out, too, that it is no bad row.
  bool is_new_level(const LossWatch::Spike& spike) const;
  /// Goes back to the state that was kept, and leaves the step of the spike out from now on.
  void go_back(const LossWatch::Spike& spike);
  /// Batch, pass and rows of a step, in words.
  std::string describe_step(const LossWatch::Spike& spike) const;
  /// Why a step of this trainer must not be recorded; empty when it may be.
  std::string why_not_recorded(const StepTraits& traits) const;
};

/// Thrown between two batches of an evaluation that the loop asked for, when the run is
/// interrupted. It is no std::exception, so that a user's own evaluate() does not take it for a
/// failure.
struct EvaluationInterrupted {};

/// One call of train(): from the first step it does to the last.
struct Trainer::Run {
  Run(torch::Device device, CheckpointWriter& writer, double spike_threshold)
      : loss(device), spikes(device, spike_threshold), checkpoint(writer) {}

  TrainingPlan plan;
  DataLoader loader;
  double start_time = 0;
  LossMeter loss;
  LossWatch spikes;
  RunMonitor monitor;               ///< says what is going wrong
  std::unique_ptr<KeptState> kept;  ///< to go back to
  bool has_looked = true;           ///< for spikes, since the last state was kept
  bool has_left_out = false;        ///< a step, since the last look
  bool has_said_spike = false;
  StepOptions step_options;                  ///< what the engine was begun with
  std::unique_ptr<kernels::Fp8Weights> fp8;  ///< --fp8, until the last step
  double total_loss = 0;       ///< of all steps of the run, those before a resume included
  int64_t loss_from_step = 0;  ///< the step `total_loss` counts from: not 0 after a resume from
                               ///< Python's checkpoint
  int64_t last_logged_step = 0;
  int64_t initial_global_step = 0;
  int64_t initial_num_input_tokens_seen = 0;
  double new_flos = 0;  ///< not yet in state.total_flos

  // Where to begin: pass, batches of it already done, and the loader's own state.
  int64_t first_epoch = 0;
  int64_t skip_batches = 0;
  nlohmann::json loader_state;
  bool ended_by_callback =
      false;  ///< the checkpoint resumed from was the last of a run that a callback had stopped
  bool pass_had_ended = false;            ///< the checkpoint resumed from was the last of its pass
  std::optional<RngState> rng;            ///< set before the first step after a resume
  nlohmann::json restored_position;       ///< where the checkpoint resumed from stood
  std::optional<bool> repeat_evaluation;  ///< its evaluation was interrupted; with a save after it
  ChangedOptions changed_options;         ///< since the checkpoint resumed from

  // The pass under way.
  int64_t epoch = 0;
  int64_t batches_done = 0;             ///< of this pass
  int64_t window = 1;                   ///< the batches of the step under way
  std::optional<ElasticOrder> elastic;  ///< where several processes share each batch
  bool at_epoch_end = false;
  std::optional<BatchIterator> batches;
  std::optional<torch::Tensor> grad_norm;
  std::optional<double> learning_rate;

  /// What an evaluation may change, as it was before.
  struct BeforeEvaluation {
    RngState random;
    nlohmann::json callbacks, exported_callbacks;  ///< their states
    LogHistory log_history;
  };
  bool may_interrupt_evaluation = false;  ///< the loop evaluates, and can repeat it on a resume
  std::optional<int64_t> saved_step;      ///< of the newest save
  int64_t failed_saves = 0;               ///< in a row
  std::optional<BeforeEvaluation> before_evaluation;  ///< one that was interrupted: saved instead
  bool evaluation_is_missing = false;  ///< interrupted, or not begun: a resume makes up for it

  /// Starts the pass `epoch`, where the run goes on in it.
  void begin_pass();
  /// The batches of the next step, at most `size`; none at the end of the pass.
  std::vector<Batch> next_window(int64_t size);

  // What a checkpoint keeps.
  RunCheckpoint checkpoint;
  std::vector<std::string> random_files;  ///< rng_state_N.pth of every process, for this save
  nlohmann::json losses;                  ///< the loss sums of every process, for this save
  std::optional<nlohmann::json> data;     ///< the fingerprint of the training data, once asked for
  std::optional<std::string> best_before_save;  ///< best_model_checkpoint, if the last save fails
  std::optional<int64_t> failed_step;           ///< the step of the last save, if that has failed

  /// Adds all parts of the run, in the order in which they are restored. `model` is asked for at
  /// every save.
  void add_checkpoint_parts(Parts& parts, std::function<ModelFolder()> model);
  /// Exchanges what only one process knows and all checkpoints keep.
  void gather_states(const Parts& parts);
  /// What gradus_state.json holds: all that a resume needs beyond transformers' files. Waits for
  /// the device.
  nlohmann::json saved_state(const Parts& parts);
  /// Takes it over. Throws nlohmann's exceptions where it lacks something.
  void restore_saved_state(const nlohmann::json& saved, Parts& parts);

  /// Moves the FLOPs counted since the last call, in all processes, into `state`.
  void store_flos(TrainerState& state, const Processes& processes) {
    state.total_flos += processes.sum(std::exchange(new_flos, 0));
  }

  /// Whether the micro-batches so far end with a full window, or the pass with a short one.
  bool window_is_complete(int64_t window) const { return is_window_end(batches_done, window); }
  /// Whether they will with the one under way.
  bool window_will_be_complete(int64_t window) const {
    return is_window_end(batches_done + 1, window);
  }

 private:
  void add_optimizer_parts(Parts& parts);
  void add_shards(Parts& parts, const std::shared_ptr<StateTree>& loaded);
  void add_random_parts(Parts& parts);
  void begin_after(int64_t steps, const TrainingArguments& args);
  void restore_position(const nlohmann::json& position, const Parts& parts);
  bool is_window_end(int64_t batches, int64_t window) const {
    return batches % window == 0 || batches == plan.steps_in_epoch;
  }
};

/// Throws `Error` G-TRAIN-24 for a `spike_action` in several processes.
void check_spike_action(const TrainingArguments& args, const Processes& processes);
/// The model that `model_init` makes. Throws G-TRAIN-8 when it makes none.
std::shared_ptr<Model> make_initial_model(const ModelInit& model_init,
                                          search::Trial* trial = nullptr);
/// Takes an evaluation into `state`'s best metric; whether it is the best so far.
bool update_best_metric(const Metrics& metrics, const TrainingArguments& args, TrainerState& state);
/// The metric that metric_for_best_model names. Throws G-TRAIN-13 when there is none.
double best_metric_of(const Metrics& metrics, const TrainingArguments& args);
/// "eval_" + metric_for_best_model.
std::string best_metric_key(const TrainingArguments& args);
/// Takes one number from the CPU's generator, as Python's DataLoader does for its workers whenever
/// it starts them: when a pass begins, or the first one with persistent workers. Nothing uses it;
/// without, dropout would draw other masks than in Python.
void draw_as_a_loader_does();
/// Whether the workers of a loader stay from pass to pass.
bool keeps_workers(const DataLoader& loader);
/// What ran out of memory, how much the run held, and what to change.
Error out_of_memory_error(torch::Device device, const std::string& what);
/// Seconds since the epoch.
double wall_clock();
/// {split}_runtime and, where given, the rates, rounded as HF does.
Metrics speed_metrics(const std::string& split, double start_time, std::optional<double> samples,
                      std::optional<double> steps, std::optional<double> tokens = {});

}  // namespace gradus
