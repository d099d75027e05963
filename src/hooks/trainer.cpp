#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/hooks/trainer.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "hooks/interrupt.h"

namespace gradus::hooks {
namespace {

Error bad_argument(const std::string& message, const std::string& advice) {
  return Error("G-HOOK-1", ErrorKind::usage, message, advice);
}

/// Throws unless the step gave a loss that can be used. A validation step may leave it out.
void check_loss(const Result& result, const char* step, bool required) {
  const auto* loss = result.find("loss");
  if (loss == nullptr && !required) return;
  const auto* advice =
      "A step returns {{\"loss\", loss}, ...} where the loss is one number, the mean over the "
      "batch for instance.";
  if (loss == nullptr)
    throw Error("G-HOOK-2", ErrorKind::training,
                fmt::format("{} returned no 'loss'; it returned {}", step,
                            result.empty() ? "nothing"
                                           : fmt::format("{}", fmt::join(result.names(), ", "))),
                advice);
  if (!loss->defined())
    throw Error("G-HOOK-2", ErrorKind::training,
                fmt::format("{} returned an undefined tensor as 'loss'", step), advice);
  if (loss->numel() != 1)
    throw Error("G-HOOK-2", ErrorKind::training,
                fmt::format("{} returned a 'loss' of shape [{}], expected one number", step,
                            fmt::join(loss->sizes(), ", ")),
                advice);
}

}  // namespace

Cancelled::Cancelled()
    : Error("G-HOOK-9", ErrorKind::training, "training was interrupted",
            "With a CheckpointHook, checkpoint_interrupted.pt holds the state; give it as "
            "resume_path to continue.") {}

Trainer::Trainer(TrainerOptions options)
    : options_(std::move(options)),
      operations_{{"train_step",
                   [this](const AnyBatch& batch) { return options_.train_step(batch, *this); }},
                  {"eval_step",
                   [this](const AnyBatch& batch) {
                     return (options_.eval_step ? options_.eval_step : options_.train_step)(batch,
                                                                                            *this);
                   }},
                  {"do_backward", [this] { do_backward(); }},
                  {"do_opt_step", [this] { return do_opt_step(); }},
                  {"do_zero_grad", [this] { do_zero_grad(); }}},
      device_(options_.device.value_or(device::pick_device(/*use_cpu=*/false, 0))),
      engine_(std::make_shared<StepEngine>(device_)) {
  if (options_.model == nullptr)
    throw bad_argument("hooks::Trainer has no model",
                       "Set .model to a std::shared_ptr of your module.");
  if (!options_.train_step)
    throw bad_argument("hooks::Trainer has no train_step",
                       "Set .train_step to a function (batch, trainer) -> hooks::Result.");
  if (options_.epochs < 0)
    throw bad_argument(fmt::format("epochs: expected 0 or more, received {}", options_.epochs),
                       "Set .epochs to the number of passes over train_dl.");
  engine_->set_optimizer(options_.optim);
}

Trainer::~Trainer() = default;

void Trainer::set_device(torch::Device device) {
  device_ = device;
  engine_->set_device(device, engine_->precision().dtype());
  engine_->precision().begin_run(scaling_);
}

void Trainer::set_precision(torch::ScalarType dtype, GradScalerOptions scaling) {
  scaling_ = scaling;
  engine_->set_device(device_, dtype);
  engine_->precision().begin_run(scaling);
}

void Trainer::set_strategy(std::shared_ptr<Strategy> strategy) {
  engine_->set_strategy(std::move(strategy));
}

void Trainer::share_batches(int64_t rank, int64_t world) {
  options_.train_dl = options_.train_dl.share_of(rank, world);
  options_.valid_dl = options_.valid_dl.share_of(rank, world);
}

/// What a run changes for its length: the signal, what hooks made of the operations, their
/// cleanups.
struct Trainer::RunScope {
  explicit RunScope(Trainer& trainer)
      : trainer_(trainer),
        operations_(trainer.operations_),
        train_dl_(trainer.options_.train_dl),
        valid_dl_(trainer.options_.valid_dl) {
    trainer_.order_ = trainer_.hooks_in_order();
    trainer_.step_options_ = {};
    trainer_.set_strategy(nullptr);
    trainer_.set_precision(torch::kFloat);
  }
  ~RunScope() {
    auto& cleanups = trainer_.cleanups_;
    for (; !cleanups.empty(); cleanups.pop_back()) run_cleanup(cleanups.back());
    trainer_.engine_->end();
    trainer_.operations_ = std::move(operations_);
    trainer_.options_.train_dl = std::move(train_dl_);
    trainer_.options_.valid_dl = std::move(valid_dl_);
    trainer_.batch_ = {};
    trainer_.result_ = {};
    trainer_.ahead_.reset();
    trainer_.resume_.reset();
  }
  /// The run is over, perhaps by an exception: what fails now is only said.
  static void run_cleanup(const std::function<void()>& action) {
    try {
      action();
    } catch (const std::exception& error) {
      log_error(fmt::format("an action at the end of fit failed: {}", error.what()));
    } catch (...) {
      log_error("an action at the end of fit failed");
    }
  }

  Trainer& trainer_;
  Operations operations_;
  Batches train_dl_, valid_dl_;
  InterruptScope interrupt_;
};

void Trainer::fit() try { run_epochs(); } catch (const std::exception& error) {
  if (accelerator_ && accelerator_->group) accelerator_->group->fail(error.what());
  throw;
}

void Trainer::run_epochs() {
  check_ready();
  const RunScope scope(*this);
  step_state_.num_processes = accelerator_ ? accelerator_->num_processes : 1;
  start_epoch_ = 0;
  call(Point::before_fit);
  options_.model->to(device_);
  step_options_.clipped = options_.model->parameters();
  engine_->begin(*options_.model, step_options_);
  try {
    for (int64_t epoch = start_epoch_; epoch < options_.epochs; ++epoch) {
      step_state_.epoch = epoch;
      for (const bool trains : {true, false}) {
        if (!trains && !options_.valid_dl) continue;
        training_ = trains;
        options_.model->train(trains);
        call(trains ? Point::before_epoch : Point::before_valid);
        if (trains && resume_ && resume_->in_validation) continue;

        const at::AutoGradMode gradients(trains);
        auto pass = open_pass();
        while (next_batch(pass)) {
          call(Point::before_step);
          batch_ = batch_.to(device_);
          run_batch();
          call(Point::after_step);
          result_ = {};
        }
        batch_ = {};
      }
      call(Point::after_epoch);
    }
  } catch (const Cancelled&) {
    call(Point::after_cancel);
    throw;
  }
  call(Point::after_fit);
}

void Trainer::do_backward() {
  if (const auto* loss = result_.find("loss")) engine_->backward(*loss);
}

bool Trainer::do_opt_step() {
  optim();  // throws when there is none
  engine_->step();
  return !engine_->step_was_skipped();
}

void Trainer::do_zero_grad() { optim().zero_grad(); }

Optimizer& Trainer::optim() const {
  if (options_.optim == nullptr)
    throw bad_argument("hooks::Trainer has no optimizer",
                       "Set .optim, or override do_opt_step and do_zero_grad.");
  return *options_.optim;
}

double Trainer::loss() const {
  return loss_t_.defined() ? loss_t_.item<double>() : std::numeric_limits<double>::quiet_NaN();
}

void Trainer::resume_at(ResumePosition position) {
  start_epoch_ = step_state_.epoch = position.epoch;
  step_state_.batch_idx = position.batch_idx;
  resume_ = std::move(position);
}

void Trainer::check_ready() const {
  if (options_.epochs > 0 && !options_.train_dl)
    throw bad_argument("hooks::Trainer has no train_dl",
                       "Set .train_dl to a DataLoader, tensor_loader(...) or a list of batches.");
}

/// Calls the hooks in order. A signal that came meanwhile ends the run, after the hook under way;
/// not between backward and the counters, where gradients and counters disagree and no exact resume
/// is possible.
void Trainer::call(Point point) {
  const bool may_end = point != Point::after_backward;
  for (const auto* hook : order_) {
    if (hook->main_process_only() && !is_main()) continue;
    (*hook)->run(point, *this);
    if (may_end && take_interrupt()) throw Cancelled();
  }
  if (may_end && take_interrupt()) throw Cancelled();
}

/// The pass of the epoch, from the place of a resumed run where it is its turn.
BatchPass Trainer::open_pass() {
  ahead_.reset();
  loader_state_ = {};
  step_state_.reset_epoch();
  if (!resume_ || resume_->epoch != step_state_.epoch || resume_->in_validation == training_)
    return dl().iterate(step_state_.epoch, 0, {});
  const auto at = *std::exchange(resume_, std::nullopt);
  step_state_.batch_idx = at.batch_idx;
  loader_state_ = at.loader_state;
  return dl().iterate(step_state_.epoch, at.batch_idx, at.loader_state);
}

/// Fetches the batch to work on and finds out whether it is the last.
bool Trainer::next_batch(BatchPass& pass) {
  auto batch = ahead_ ? std::exchange(ahead_, std::nullopt) : pass.next();
  if (take_interrupt()) throw Cancelled();
  if (!batch) return false;
  batch_ = std::move(*batch);
  state_after_batch_ = pass.state();
  if (const auto size = dl().size()) {
    is_last_batch_ = step_state_.batch_idx + 1 >= *size;
  } else {
    ahead_ = pass.next();
    is_last_batch_ = !ahead_;
  }
  return true;
}

/// The step of the batch under way and, in training, gradients and update.
void Trainer::run_batch() {
  did_opt_step_ = false;
  const auto step_and_gradients = [this](const auto&...) {
    run_step();
    if (options_.model->is_training()) operations_.backward();
    return loss_t_;
  };
  const WindowPlace place{
      .size = step_state_.grad_accum_steps, .is_last = is_step_due(), .gradients_are_read = true};
  if (training_)
    engine_->micro_batch({}, {}, place, step_and_gradients);
  else
    step_and_gradients();
  if (!options_.model->is_training()) return;
  call(Point::after_backward);
  did_opt_step_ = operations_.opt_step();
  operations_.zero_grad();
  count_batch();
}

void Trainer::run_step() {
  const bool trains = options_.model->is_training();
  result_ = trains ? operations_.train_step(batch_) : operations_.eval_step(batch_);
  if (take_interrupt()) throw Cancelled();
  check_loss(result_, trains || !options_.eval_step ? "train_step" : "eval_step", trains);
  const auto* loss = result_.find("loss");
  loss_t_ = loss == nullptr ? torch::Tensor() : *loss;
}

void Trainer::count_batch() {
  step_state_.increment_batch(batch_.rows(), /*is_training=*/true, did_opt_step_);
  loader_state_ = state_after_batch_;
}

std::vector<const HookHandle*> Trainer::hooks_in_order() const {
  std::vector<const HookHandle*> order;
  for (const auto& hook : options_.hooks) order.push_back(&hook);
  std::stable_sort(order.begin(), order.end(),
                   [](const HookHandle* a, const HookHandle* b) { return (*a)->ord < (*b)->ord; });
  return order;
}

void Trainer::no_such_hook(const std::string& type) const {
  std::vector<std::string> names;
  for (const auto& hook : options_.hooks) names.push_back(hook->name());
  throw Error(
      "G-HOOK-6", ErrorKind::usage,
      fmt::format("there is no hook {}; there {}", type,
                  names.empty() ? "are none" : fmt::format("are {}", fmt::join(names, ", "))),
      fmt::format("Add one to .hooks, or ask with get_hook<{}>(nullptr).", type));
}

std::string Trainer::hook_table() const {
  const auto order = hooks_in_order();
  std::string table = "| Lifecycle Point | Hook | Order |\n| --------------- | ---- | ----- |\n";
  for (size_t i = 0; i < kPointCount; ++i) {
    const auto point = Point(i);
    bool first = true;
    for (const auto* hook : order) {
      if (!hook->implements(point)) continue;
      table += fmt::format("| {} | {} | {} |\n", first ? point_name(point) : "", (*hook)->name(),
                           (*hook)->ord);
      first = false;
    }
    if (first) table += fmt::format("| {} | (none) | |\n", point_name(point));
  }
  return table;
}

std::string Trainer::describe_hooks() const {
  auto table = hook_table();
  log_print(table);
  return table;
}

}  // namespace gradus::hooks
