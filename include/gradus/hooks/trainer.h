#pragma once

#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/engine/step_engine.h>
#include <gradus/hooks/accelerator.h>
#include <gradus/hooks/any_batch.h>
#include <gradus/hooks/hook.h>
#include <gradus/hooks/operations.h>
#include <gradus/hooks/step_state.h>
#include <gradus/optim/optimizer.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus::hooks {

/// What a `Trainer` is made of.
struct TrainerOptions {
  std::shared_ptr<torch::nn::Module> model = {};  ///< must be given
  StepFunction train_step = {};                   ///< must be given; computes the loss of a batch
  Batches train_dl = {};                          ///< what an epoch trains on
  Batches valid_dl = {};                          ///< unset: no validation
  StepFunction eval_step = {};                    ///< default: train_step
  std::shared_ptr<Optimizer> optim = {};          ///< unset: override do_opt_step and do_zero_grad
  int64_t epochs = 10;                            ///< passes over `train_dl`
  std::vector<HookHandle> hooks = {};             ///< what happens around the steps
  std::optional<torch::Device> device = {};       ///< default: the GPU when there is one
  nlohmann::json config = {};                     ///< for your own hooks; saved beside checkpoints
};

/// Thrown by `fit` after an interrupt, when `after_cancel` has run. SIGINT interrupts; a hook or a
/// step may also throw it.
class Cancelled : public Error {
 public:
  Cancelled();
};

/// Where a resumed run continues.
struct ResumePosition {
  int64_t epoch = 0;                 ///< the epoch, from 0
  int64_t batch_idx = 0;             ///< batches of the pass that are done
  bool in_validation = false;        ///< whether the pass is the validation of the epoch
  nlohmann::json loader_state = {};  ///< see `BatchPass::state`
};

/// Trains with a step you write and hooks that run in order around it.
///
///     before_fit
///     for each epoch:
///       before_epoch, for each training batch:
///         before_step → train_step → do_backward → after_backward → do_opt_step
///         → do_zero_grad → counters → after_step
///       before_valid, for each validation batch, without gradients:
///         before_step → eval_step → after_step
///       after_epoch
///     after_fit                                   (after an interrupt: after_cancel)
///
/// `do_backward`, `do_opt_step` and `do_zero_grad` can be overridden, and hooks wrap or replace
/// them through `operations()`. Precision, clipping and the synchronization of processes are the
/// work of a `StepEngine`, the one that `gradus::Trainer` runs on too. The trainer shares model,
/// optimizer and hooks with its caller. Thread-safety: none. While `fit` runs, it handles SIGINT:
/// the signal ends the run after the function under way.
class Trainer {
 public:
  /// Throws `Error` G-HOOK-1 without a model or a train_step, or when a number is out of range.
  explicit Trainer(TrainerOptions options);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs all epochs. Throws `Cancelled` after an interrupt, and G-HOOK-2 when a step returns no
  /// usable loss.
  void fit();

  /// Computes the gradients of `result()["loss"]`.
  virtual void do_backward();
  /// Steps the optimizer. Returns whether it really stepped: in float16 it does not when gradients
  /// are not finite.
  virtual bool do_opt_step();
  /// Drops the gradients of the optimizer's parameters.
  virtual void do_zero_grad();
  /// These three and the two steps, with the changes of the hooks. Call them to do what the loop
  /// does.
  Operations& operations() { return operations_; }

  // How steps are made. Hooks set it in `before_fit`; every run starts with float32, no clipping
  // and a single process.
  /// Where to train. A checkpoint must be loaded after that.
  void set_device(torch::Device device);
  /// The number format of the steps. `scaling` is for float16.
  void set_precision(torch::ScalarType dtype, GradScalerOptions scaling = {});
  /// What the processes do together.
  void set_strategy(std::shared_ptr<Strategy> strategy);
  /// Lets this run have its share of the batches only; see `Batches::share_of`.
  void share_batches(int64_t rank, int64_t world);
  /// The norm to clip to, and the like; read when `before_fit` is over.
  StepOptions& step_options() { return step_options_; }
  /// What makes the steps.
  StepEngine& engine() const { return *engine_; }
  /// The same, to keep it beyond the trainer's life.
  const std::shared_ptr<StepEngine>& shared_engine() const { return engine_; }

  /// The first hook of type `T`. When there is none, throws G-HOOK-6 with the hooks there are.
  template <class T>
  T& get_hook() const {
    if (auto* found = get_hook<T>(nullptr)) return *found;
    no_such_hook(detail::type_name(typeid(T)));
  }
  /// The same, but returns `otherwise` when there is none.
  template <class T>
  T* get_hook(T* otherwise) const {
    for (const auto& hook : options_.hooks)
      if (auto* found = dynamic_cast<T*>(hook.get())) return found;
    return otherwise;
  }

  /// Writes `hook_table()` to the log sink and returns it.
  std::string describe_hooks() const;
  /// A Markdown table: which hooks run at which point, in which order.
  std::string hook_table() const;

  /// The model.
  torch::nn::Module& model() { return *options_.model; }
  /// The same, to keep it.
  const std::shared_ptr<torch::nn::Module>& shared_model() const { return options_.model; }
  /// The optimizer. Throws G-HOOK-1 when there is none.
  Optimizer& optim() const;
  /// The batches to train on.
  const Batches& train_dl() const { return options_.train_dl; }
  /// The batches to validate on.
  const Batches& valid_dl() const { return options_.valid_dl; }
  /// The batches of the pass under way.
  const Batches& dl() const { return training_ ? options_.train_dl : options_.valid_dl; }
  /// The passes of a whole run.
  int64_t epochs() const { return options_.epochs; }
  /// The first epoch of this run; not 0 after a resume.
  int64_t start_epoch() const { return start_epoch_; }
  /// In the order in which they were given.
  const std::vector<HookHandle>& hooks() const { return options_.hooks; }
  /// Where it trains.
  torch::Device device() const { return device_; }
  /// What the user gave as `config`.
  const nlohmann::json& config() const { return options_.config; }

  /// Values that hooks share.
  State& state() { return state_; }
  /// The same, to read.
  const State& state() const { return state_; }
  /// The counters of the run.
  StepState& step_state() { return step_state_; }
  /// The same, to read.
  const StepState& step_state() const { return step_state_; }
  /// Whether the pass under way trains.
  bool training() const { return training_; }
  /// Whether the optimizer stepped for the batch under way.
  bool did_opt_step() const { return did_opt_step_; }
  /// Whether the batch under way is the last of its pass.
  bool is_last_batch() const { return is_last_batch_; }
  /// Whether the batch under way ends an accumulation window, so that an optimizer step is due.
  bool is_step_due() const { return step_state_.is_grad_accum_boundary(is_last_batch_); }
  /// The batch under way; hooks may change it in `before_step`.
  AnyBatch& batch() { return batch_; }
  /// What the step returned for it.
  Result& result() { return result_; }
  /// The loss as the step returned it; undefined when a validation step returned none.
  const torch::Tensor& loss_t() const { return loss_t_; }
  /// Its value; NaN when there is none. Waits for the device.
  double loss() const;

  /// Whether a hook has set an accelerator.
  bool is_distributed() const { return accelerator_ != nullptr; }
  /// Whether this process logs and saves.
  bool is_main() const { return accelerator_ == nullptr || accelerator_->is_main_process(); }
  /// The processes that train together; null unless a hook has set it.
  const std::shared_ptr<Accelerator>& accelerator() const { return accelerator_; }
  /// Sets it; for hooks that bring processes together.
  void set_accelerator(std::shared_ptr<Accelerator> accelerator) {
    accelerator_ = std::move(accelerator);
  }

  /// Makes the run continue at `position`. Call it in `before_fit`.
  void resume_at(ResumePosition position);
  /// What the pass under way needs, besides its batch number, to be resumed; null except for
  /// streams.
  nlohmann::json loader_state() const { return loader_state_; }
  /// Runs `action` when `fit` ends, also by an exception. The last action runs first. What an
  /// action throws is logged, not thrown.
  void at_end_of_fit(std::function<void()> action) { cleanups_.push_back(std::move(action)); }

 private:
  struct RunScope;

  void run_epochs();
  void call(Point point);
  void check_ready() const;
  BatchPass open_pass();
  bool next_batch(BatchPass& pass);
  void run_batch();
  void run_step();
  void count_batch();
  std::vector<const HookHandle*> hooks_in_order() const;
  [[noreturn]] void no_such_hook(const std::string& type) const;

  TrainerOptions options_;
  Operations operations_;
  torch::Device device_;
  std::shared_ptr<StepEngine> engine_;
  GradScalerOptions scaling_;
  StepOptions step_options_;
  State state_;
  StepState step_state_;
  std::vector<const HookHandle*> order_;
  std::vector<std::function<void()>> cleanups_;
  std::shared_ptr<Accelerator> accelerator_;
  std::optional<ResumePosition> resume_;
  std::optional<AnyBatch> ahead_;  // read one batch early where a pass has no known size
  nlohmann::json loader_state_;    // fits step_state_.batch_idx
  nlohmann::json state_after_batch_;
  int64_t start_epoch_ = 0;
  AnyBatch batch_;
  Result result_;
  torch::Tensor loss_t_;
  bool training_ = true;
  bool did_opt_step_ = false;
  bool is_last_batch_ = false;
};

}  // namespace gradus::hooks
