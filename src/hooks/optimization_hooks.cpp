#include <gradus/config/launch_environment.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/engine/data_parallel.h>
#include <gradus/hooks/accelerate_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/trainer.h>

#include <fmt/format.h>

#include "distributed/process_device.h"

namespace gradus::hooks {
namespace {

Error out_of_range(const std::string& what, const std::string& advice) {
  return Error("G-HOOK-1", ErrorKind::usage, what, advice);
}

/// Runs both steps in the engine's number format, for the operations of `device`.
void autocast_steps(Trainer& trainer, const Hook& by, torch::DeviceType device) {
  const auto cast = [&trainer, device](const auto& previous, const AnyBatch& batch) {
    const device::AutocastGuard guard(device, trainer.engine().precision().dtype());
    return previous(batch);
  };
  trainer.operations().train_step.wrap(by, cast);
  trainer.operations().eval_step.wrap(by, cast);
}

/// The engine's step. Whether it was really made.
bool engine_step(Trainer& trainer) {
  trainer.optim();  // throws when there is none
  trainer.engine().step();
  return !trainer.engine().step_was_skipped();
}

}  // namespace

AMPHook::AMPHook(AMPOptions options) : options_(options) {
  ord = -200;  // first, so that others wrap what it puts in place
  if (options_.dtype != torch::kHalf && options_.dtype != torch::kBFloat16)
    throw out_of_range(fmt::format("AMPHook: dtype: expected float16 or bfloat16, received {}",
                                   c10::toString(options_.dtype)),
                       "Leave the hook out to train in float32.");
}

void AMPHook::before_fit(Trainer& trainer) {
  bool has_bf16 = false;
  for (const auto& parameter : trainer.model().parameters())
    has_bf16 |= parameter.scalar_type() == torch::kBFloat16;
  const bool scales =
      options_.enabled && options_.dtype == torch::kHalf && !has_bf16 && trainer.device().is_cuda();
  log_info(fmt::format("Mixed Precision Training: {}", options_.enabled ? "Enabled" : "Disabled"));
  trainer.set_precision(options_.enabled ? options_.dtype : torch::kFloat, {.enabled = scales});
  engine_ = trainer.shared_engine();
  autocast_steps(trainer, *this, options_.device_type.value_or(trainer.device().type()));
  trainer.operations().backward.replace(*this, [&trainer] {
    if (const auto* loss = trainer.result().find("loss")) trainer.engine().backward(*loss);
  });
  trainer.operations().opt_step.replace(*this, [&trainer] { return engine_step(trainer); });
}

GradScaler* AMPHook::scaler() const {
  if (engine_ == nullptr) return nullptr;
  auto* scaler = engine_->precision().scaler();
  return scaler != nullptr ? scaler : disabled_.get();
}

LRSchedulerHook::LRSchedulerHook(std::shared_ptr<LRScheduler> scheduler)
    : LRSchedulerHook(Factory([scheduler](Optimizer&) { return scheduler; })) {}

LRSchedulerHook::LRSchedulerHook(Factory factory) : factory_(std::move(factory)) { ord = -100; }

void LRSchedulerHook::before_fit(Trainer& trainer) { scheduler_ = factory_(trainer.optim()); }

void LRSchedulerHook::after_step(Trainer& trainer) {
  if (!trainer.training() || !trainer.did_opt_step()) return;
  for (int64_t i = 0; i < stride_; ++i) scheduler().step();
}

LRScheduler& LRSchedulerHook::scheduler() const {
  if (scheduler_ == nullptr)
    throw Error(
        "G-HOOK-8", ErrorKind::usage, "LRSchedulerHook has no schedule yet",
        "fit() makes it at its start; ask after that, and give a factory that returns one.");
  return *scheduler_;
}

double LRSchedulerHook::lr() const { return scheduler().last_lr().at(0); }

GradClipHook::GradClipHook(double max_norm) : max_norm_(max_norm) {
  ord = -5;
  if (!(max_norm > 0))
    throw out_of_range(
        fmt::format("GradClipHook: max_norm: expected a positive number, received {}", max_norm),
        "1.0 is common; leave the hook out not to clip.");
}

void GradClipHook::before_fit(Trainer& trainer) {
  trainer.step_options().max_grad_norm = max_norm_;
  trainer.operations().opt_step.wrap(*this, [&trainer](const auto& previous) {
    if (trainer.is_step_due()) trainer.engine().clip();
    return previous();
  });
}

GradientAccumulationHook::GradientAccumulationHook(int64_t steps) : steps_(steps) {
  ord = -10;
  if (steps < 1)
    throw out_of_range(
        fmt::format("GradientAccumulationHook: steps: expected at least 1, received {}", steps),
        "1 steps after every batch.");
}

void GradientAccumulationHook::before_fit(Trainer& trainer) {
  trainer.step_state().grad_accum_steps = steps_;
  trainer.operations().backward.wrap(*this, [this, &trainer](const auto& previous) {
    if (const auto* loss = trainer.result().find("loss"))
      trainer.result().set("loss", *loss / double(steps_));
    previous();
  });
  trainer.operations().opt_step.wrap(
      *this, [&trainer](const auto& previous) { return trainer.is_step_due() && previous(); });
  trainer.operations().zero_grad.wrap(*this, [&trainer](const auto& previous) {
    if (trainer.is_step_due()) previous();
  });
}

void EmptyCudaCacheHook::before_valid(Trainer& trainer) { device::empty_cache(trainer.device()); }

// AccelerateHook: the same three jobs in one.

AccelerateHook::AccelerateHook(AccelerateOptions options)
    : options_(std::move(options)), accelerator_(std::make_shared<Accelerator>()) {
  ord = -50;
  if (options_.gradient_accumulation_steps < 1)
    throw out_of_range(
        fmt::format("AccelerateHook: gradient_accumulation_steps: expected at least 1, received {}",
                    options_.gradient_accumulation_steps),
        "1 steps after every batch.");
  const auto& precision = options_.mixed_precision;
  if (precision != "no" && precision != "fp16" && precision != "bf16")
    throw out_of_range(
        fmt::format("AccelerateHook: mixed_precision: expected no, fp16 or bf16, received {}",
                    precision),
        "Use \"no\" for float32.");
  if (options_.timeout_seconds < 1)
    throw out_of_range(
        fmt::format("AccelerateHook: timeout_seconds: expected at least 1, received {}",
                    options_.timeout_seconds),
        "1800 is the default.");
  const auto launch = launch_environment();
  accelerator_->device = process_device(options_.cpu, launch.local_rank, GpuSharing::refused);
  accelerator_->group = ProcessGroup::of_this_run(std::chrono::seconds(options_.timeout_seconds));
  if (accelerator_->group && accelerator_->device.is_cuda())
    accelerator_->group->use_nccl(accelerator_->device);
  accelerator_->num_processes = launch.world_size;
  accelerator_->process_index = launch.rank;
  accelerator_->gradient_accumulation_steps = options_.gradient_accumulation_steps;
  accelerator_->mixed_precision = precision;
  if (precision == "fp16" && !accelerator_->device.is_cuda())
    throw out_of_range("AccelerateHook: fp16 mixed precision needs a GPU", "Use bf16 on the CPU.");
}

void AccelerateHook::before_fit(Trainer& trainer) {
  std::string found;
  for (const auto& hook : trainer.hooks())
    if (hook.get() != this && !hook->step_jobs().empty())
      found += (found.empty() ? "" : ", ") + hook->name();
  if (!found.empty())
    throw Error("G-HOOK-5", ErrorKind::usage, "AccelerateHook cannot be combined with " + found,
                "Remove them and set gradient_accumulation_steps, max_grad_norm and "
                "mixed_precision of AccelerateHook.");
  trainer.set_accelerator(accelerator_);
  trainer.set_device(accelerator_->device);
  trainer.step_state().grad_accum_steps = options_.gradient_accumulation_steps;
  trainer.step_state().num_processes = accelerator_->num_processes;
  if (accelerator_->group) {
    trainer.set_strategy(std::make_shared<DataParallel>(accelerator_->group));
    trainer.share_batches(accelerator_->process_index, accelerator_->num_processes);
    if (auto* schedule = trainer.get_hook<LRSchedulerHook>(nullptr))
      schedule->set_stride(accelerator_->num_processes);
  }
  const auto& precision = options_.mixed_precision;
  trainer.set_precision(precision == "fp16"   ? torch::kHalf
                        : precision == "bf16" ? torch::kBFloat16
                                              : torch::kFloat);
  trainer.step_options().max_grad_norm = options_.max_grad_norm.value_or(0);
  engine_ = trainer.shared_engine();
  autocast_steps(trainer, *this, trainer.device().type());
  trainer.operations().backward.replace(*this, [this, &trainer] {
    trainer.engine().backward(trainer.loss_t() / double(options_.gradient_accumulation_steps));
  });
  trainer.operations().opt_step.wrap(*this, [this, &trainer](const auto& previous) {
    if (!accelerator_->sync_gradients) return false;
    return scaler() != nullptr ? engine_step(trainer) : previous();
  });
  trainer.operations().zero_grad.wrap(*this, [this](const auto& previous) {
    if (accelerator_->sync_gradients) previous();
  });
}

void AccelerateHook::before_step(Trainer& trainer) {
  if (trainer.training()) accelerator_->sync_gradients = trainer.is_step_due();
}

void AccelerateHook::after_backward(Trainer& trainer) {
  if (options_.max_grad_norm && accelerator_->sync_gradients) trainer.engine().clip();
}

GradScaler* AccelerateHook::scaler() const {
  return engine_ == nullptr ? nullptr : engine_->precision().scaler();
}

void AccelerateHook::after_step(Trainer& trainer) {
  if (trainer.training()) accelerator_->sync_gradients = true;
}

}  // namespace gradus::hooks
