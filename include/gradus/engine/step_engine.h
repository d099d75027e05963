#pragma once

#include <gradus/data/batch.h>
#include <gradus/engine/precision.h>
#include <gradus/engine/strategy.h>
#include <gradus/models/attention_shape.h>
#include <gradus/models/model_output.h>
#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedulers.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

class DeviceSchedule;
class EvalGraphs;
class StepGraphs;
namespace device {
struct Scope;
}

/// What a run asks of its `StepEngine`.
struct StepOptions {
  /// Gradients are scaled down to this norm; 0 or less only measures it.
  double max_grad_norm = 0;
  /// Whose gradients are measured and clipped together. Empty: the model's trainable parameters,
  /// and what else the optimizer has.
  std::vector<torch::Tensor> clipped = {};
  /// The steps of the run: how many learning rates a table on the device holds.
  int64_t max_steps = 0;
  /// Trains float32 masters of a bfloat16 model, where the optimizer can.
  bool master_weights = false;
  /// Records steps as CUDA graphs, where the device can.
  bool record = false;
  /// Why steps are not recorded although `record` is set; empty: nothing speaks against it.
  std::string plain_because = {};
};

/// Where a micro-batch stands in its window: the micro-batches whose gradients one step uses.
struct WindowPlace {
  /// The micro-batches of the window.
  int64_t size = 1;
  /// Whether this is the last of them, so that `clip` and `step` come next.
  bool is_last = true;
  /// Whether somebody looks at the clipped gradients between `clip` and `step`.
  bool gradients_are_read = true;
};

/// Makes the steps of a run: backward, synchronization, clipping, optimizer, schedule.
///
/// It decides alone how a step runs: in which precision, with which processes, plainly or as a
/// recorded CUDA graph. Its caller says what a micro-batch is and when a window ends:
///
///     engine.set_optimizer(optimizer), engine.set_schedule(schedule);
///     engine.begin(model, {.max_grad_norm = 1.0});
///     for each window:
///       for each batch: loss = engine.micro_batch(batch, items, place, work);
///       norm = engine.clip();  engine.step();  engine.step_schedule();  engine.zero_grad();
///     engine.end();
///
/// `work` computes a loss and calls `engine.backward(loss)`. A loop that records nothing may call
/// `backward` itself and leave `micro_batch` out. Nothing here waits for the device but `settle`.
/// Thread-safety: none; one thread makes the steps.
class StepEngine {
 public:
  /// Forward and backward of one micro-batch; returns the detached loss. `inputs` are on the
  /// device. It does the same work for every batch of one shape.
  using Work = std::function<torch::Tensor(const Batch& inputs,
                                           const std::optional<torch::Tensor>& num_items)>;

  /// Without `strategy`, a single process trains.
  explicit StepEngine(torch::Device device, torch::ScalarType dtype = torch::kFloat,
                      std::shared_ptr<Strategy> strategy = nullptr);
  ~StepEngine();
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  /// Where the model runs.
  torch::Device device() const { return device_; }
  /// The number format of this engine's steps.
  Precision& precision() { return precision_; }
  /// The same for a const object.
  const Precision& precision() const { return precision_; }
  /// What the processes do together.
  Strategy& strategy() const { return *strategy_; }
  /// Sets it for the next run; null means a single process.
  void set_strategy(std::shared_ptr<Strategy> strategy);
  /// Sets device and number format of the next run. A loss scaler is made by
  /// `precision().begin_run`.
  void set_device(torch::Device device, torch::ScalarType dtype);

  /// The optimizer of the next run; null until one is set.
  const std::shared_ptr<Optimizer>& optimizer() const { return optimizer_; }
  /// Sets the optimizer.
  void set_optimizer(std::shared_ptr<Optimizer> optimizer) { optimizer_ = std::move(optimizer); }
  /// The learning rate schedule; null means constant rates.
  const std::shared_ptr<LRScheduler>& schedule() const { return schedule_; }
  /// Sets the schedule.
  void set_schedule(std::shared_ptr<LRScheduler> schedule) { schedule_ = std::move(schedule); }

  /// Lets the strategy make the model and the optimizer ready for a run. `begin` does so itself;
  /// who loads the optimizer's state calls it before.
  void prepare(torch::nn::Module& model);
  /// Starts a run: master weights, the stream, recorded steps. `model` must stay until `end`. The
  /// optimizer has its parameters; its state and the schedule's are those to start from.
  void begin(torch::nn::Module& model, StepOptions options);
  /// Ends the run and gives the model its own weights back. Does nothing outside a run.
  void end();

  /// Copies a batch to the device without waiting for the copy.
  Batch upload(Batch inputs) const;
  /// Runs `work` on one micro-batch, or replays its recording. The replay of the last one of a
  /// window includes the update: `clip` and `step` then only report what was done.
  torch::Tensor micro_batch(const Batch& inputs, const std::optional<torch::Tensor>& num_items,
                            const WindowPlace& place, const Work& work);
  /// Whether micro-batches are recorded, at least until something turns out to prevent it.
  bool is_recording() const { return graphs_ != nullptr; }
  /// The micro-batches of the current window.
  int64_t window_size() const { return place_.size; }
  /// Adds the gradients of `loss` to the parameters, scaled as the precision asks.
  void backward(const torch::Tensor& loss);
  /// Ends a window: synchronizes and unscales the gradients, scales them down to
  /// `max_grad_norm`, and returns the norm they had.
  torch::Tensor clip();
  /// The optimizer's step, unless float16 gradients were not finite. Without a `clip` before, it
  /// synchronizes the gradients first.
  void step();
  /// Whether the last step was left out because float16 gradients were not finite. Waits for the
  /// device in float16.
  bool step_was_skipped() const;
  /// Moves the schedule on, unless the step was skipped or a metric drives it. Returns the rate
  /// the step had; none where only the device knows whether the step was skipped (see `settle`).
  std::optional<double> step_schedule();
  /// Drops the gradients of the whole model.
  void zero_grad();

  /// While one lives, the model's parameters are what is trained, in float32 and whole.
  class Shown {
   public:
    /// Opens the scope. All processes do so together.
    Shown(const Precision& precision, Strategy& strategy, MasterWeights::Shown::Use use)
        : whole_(strategy.whole(use == MasterWeights::Shown::Use::written ? Strategy::Use::written
                                                                          : Strategy::Use::read)),
          masters_(precision.shown(use)) {}

   private:
    std::unique_ptr<Strategy::Whole> whole_;
    MasterWeights::Shown masters_;
  };
  /// Opens such a scope, to save, average or change weights; with `written`, the model takes over
  /// the changes at its end.
  Shown shown(MasterWeights::Shown::Use use = MasterWeights::Shown::Use::read) const {
    return Shown(precision_, *strategy_, use);
  }
  /// Brings the host's schedule to where the device is, where the device leads (float16 on a
  /// GPU), and returns the last step's rate. Waits for the device. Else returns none.
  std::optional<double> settle();

  /// Runs `work`, a forward pass of an evaluation, or replays its recording while a run records
  /// its steps. `kind` tells apart work that differs for inputs of one shape.
  ModelOutput forward(const Batch& inputs, const std::string& kind,
                      const std::function<ModelOutput(const Batch&)>& work);

  /// Whether the run still has to choose its implementation of attention.
  bool wants_attention() const { return device_.is_cuda() && !attention_is_chosen_; }
  /// Measures the implementations of attention for `shape`, in this run's dtype, and prefers the
  /// fastest from now on. Keeps the one of `set_attention_backend`; prefers "flash" when
  /// `deterministic`.
  void choose_attention(std::optional<AttentionShape> shape, bool deterministic);
  /// The implementation in use: part of a checkpoint, since it decides the last bits. Empty:
  /// torch's own choice.
  const std::string& attention_backend() const { return attention_backend_; }
  /// Sets the implementation of attention that is tried first.
  void set_attention_backend(std::string name) { attention_backend_ = std::move(name); }

 private:
  void begin_recording(std::string plain_because);
  /// The limit of the gradients' norm; 0 where the optimizer takes no clipping.
  double max_grad_norm() const;
  torch::Tensor clip_parts();
  bool update_is_recordable() const;
  void sync_gradients();
  void share_gradients();
  std::vector<torch::Tensor> bystanders() const;
  std::vector<torch::Tensor> trained() const;

  torch::Device device_;
  Precision precision_;
  std::shared_ptr<Strategy> strategy_;
  std::shared_ptr<Optimizer> optimizer_;
  std::shared_ptr<LRScheduler> schedule_;

  // The current run.
  torch::nn::Module* model_ = nullptr;
  bool is_prepared_ = false;
  StepOptions options_;
  WindowPlace place_;
  std::vector<torch::Tensor> parameters_;  // whose gradients the processes share
  std::vector<torch::Tensor> clipped_;     // whose gradients are clipped
  std::vector<torch::Tensor> bystanders_;  // that get gradients but are not the optimizer's
  std::unique_ptr<device::Scope> stream_;  // work can be recorded only on a stream of its own
  std::unique_ptr<StepGraphs> graphs_;
  std::unique_ptr<EvalGraphs> eval_graphs_;
  std::unique_ptr<DeviceSchedule> device_schedule_;  // for steps that the host does not follow
  bool window_is_open_ = false;        // between the first micro-batch of a window and its last
  bool gradients_are_synced_ = false;  // those of the current window, and unscaled
  bool gradients_are_shared_ = false;  // between the processes
  std::optional<torch::Tensor> clip_coefficient_;  // left to the optimizer's kernel
  std::optional<torch::Tensor> replayed_norm_;     // a replay did the update of this window
  std::string attention_backend_;
  bool attention_is_chosen_ = false;
};

}  // namespace gradus
