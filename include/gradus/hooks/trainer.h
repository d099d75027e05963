#pragma once

#include <gradus/core/error.h>
#include <gradus/core/json.h>
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

struct TrainerOptions {
  std::shared_ptr<torch::nn::Module> model = {};
  StepFunction train_step = {};
  Batches train_dl = {};
  Batches valid_dl = {};        ///< none: no validation
  StepFunction eval_step = {};  ///< default: train_step
  std::shared_ptr<Optimizer> optim = {};
  int64_t epochs = 10;
  std::vector<HookHandle> hooks = {};
  std::optional<torch::Device> device = {};  ///< default: the GPU when there is one
  nlohmann::json config = {};                ///< yours: for hooks, and saved beside checkpoints
};

/// Thrown out of `fit` after an interrupt (SIGINT, or a hook or step that throws it), when
/// `after_cancel` has run.
class Cancelled : public Error {
 public:
  Cancelled();
};

/// Where a run goes on.
struct ResumePosition {
  int64_t epoch = 0;
  int64_t batch_idx = 0;
  bool in_validation = false;
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
/// `do_backward`, `do_opt_step` and `do_zero_grad` can be overridden, and wrapped or replaced by
/// hooks through `operations()`. The trainer shares model, optimizer and hooks with its maker.
/// Thread-safety: none. SIGINT belongs to `fit` while it runs: the signal ends the run after the
/// function under way.
class Trainer {
 public:
  /// Throws `Error` G-HOOK-1 without a model or a train_step, or when a number is out of range.
  explicit Trainer(TrainerOptions options);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs all epochs. Throws `Cancelled` after an interrupt, G-HOOK-2 when a step gives no usable
  /// loss.
  void fit();

  /// The gradients of `result()["loss"]`.
  virtual void do_backward();
  /// Returns whether the optimizer really stepped.
  virtual bool do_opt_step();
  virtual void do_zero_grad();
  /// Those three and the two steps, with what hooks made of them. Call these to do what the loop
  /// does.
  Operations& operations() { return operations_; }

  /// The first hook of type `T`. Throws G-HOOK-6 with the hooks there are when it is absent.
  template <class T>
  T& get_hook() const {
    if (auto* found = get_hook<T>(nullptr)) return *found;
    no_such_hook(detail::type_name(typeid(T)));
  }
  /// The same, with `otherwise` when it is absent.
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

  torch::nn::Module& model() { return *options_.model; }
  const std::shared_ptr<torch::nn::Module>& shared_model() const { return options_.model; }
  /// Throws G-HOOK-1 when the trainer has none.
  Optimizer& optim() const;
  const Batches& train_dl() const { return options_.train_dl; }
  const Batches& valid_dl() const { return options_.valid_dl; }
  /// The batches of the pass under way.
  const Batches& dl() const { return training_ ? options_.train_dl : options_.valid_dl; }
  int64_t epochs() const { return options_.epochs; }
  int64_t start_epoch() const { return start_epoch_; }
  const std::vector<HookHandle>& hooks() const { return options_.hooks; }
  torch::Device device() const { return device_; }
  void set_device(torch::Device device) { device_ = device; }
  const nlohmann::json& config() const { return options_.config; }

  State& state() { return state_; }
  const State& state() const { return state_; }
  StepState& step_state() { return step_state_; }
  const StepState& step_state() const { return step_state_; }
  /// Whether the pass under way trains.
  bool training() const { return training_; }
  /// Whether the optimizer stepped for the batch under way.
  bool did_opt_step() const { return did_opt_step_; }
  /// Whether the batch under way is the last of its pass.
  bool is_last_batch() const { return is_last_batch_; }
  /// Whether the batch under way ends an accumulation window, so that an optimizer step is due.
  bool is_step_due() const { return step_state_.is_grad_accum_boundary(is_last_batch_); }
  AnyBatch& batch() { return batch_; }
  Result& result() { return result_; }
  /// The loss as the step gave it; undefined when a validation step gave none.
  const torch::Tensor& loss_t() const { return loss_t_; }
  /// Its value. Reads the device. NaN when there is none.
  double loss() const;

  bool is_distributed() const { return accelerator_ != nullptr; }
  bool is_main() const { return accelerator_ == nullptr || accelerator_->is_main_process(); }
  /// Null unless a hook has set one.
  const std::shared_ptr<Accelerator>& accelerator() const { return accelerator_; }
  void set_accelerator(std::shared_ptr<Accelerator> accelerator) {
    accelerator_ = std::move(accelerator);
  }

  /// Lets the run go on at `position`; for `before_fit`.
  void resume_at(ResumePosition position);
  /// What the pass under way needs besides its batch number to go on: null except for streams.
  nlohmann::json loader_state() const { return loader_state_; }
  /// Runs `action` when `fit` is left, however that is; the last one first. What an action throws
  /// is logged, not thrown.
  void at_end_of_fit(std::function<void()> action) { cleanups_.push_back(std::move(action)); }

 private:
  struct RunScope;

  void call(Point point);
  void check_ready() const;
  BatchPass open_pass();
  bool next_batch(BatchPass& pass);
  void run_step();
  void count_batch();
  std::vector<const HookHandle*> hooks_in_order() const;
  [[noreturn]] void no_such_hook(const std::string& type) const;

  TrainerOptions options_;
  Operations operations_;
  torch::Device device_;
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
