#include "hooks/trainer_snapshot.h"

#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/rng_state.h>
#include <gradus/hooks/accelerate_hook.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/trainer.h>
#include <gradus/models/model.h>

namespace gradus::hooks {
namespace {

/// The model as a `Model`, whose state has Python's names and whose loading checks them.
std::shared_ptr<Model> named_model(const Trainer& trainer) {
  const auto& module = trainer.shared_model();
  if (auto model = std::dynamic_pointer_cast<Model>(module)) return model;
  return make_model(module, [](torch::nn::Module&, const Batch&) { return ModelOutput(); });
}

StateTree weights_of(const Trainer& trainer) {
  auto weights = StateTree::dict();
  for (const auto& item : named_model(trainer)->state_dict()) weights.set(item.key(), item.value());
  return weights;
}

GradScaler* scaler_of(const Trainer& trainer) {
  if (const auto* amp = trainer.get_hook<AMPHook>(nullptr)) return amp->scaler();
  const auto* accelerate = trainer.get_hook<AccelerateHook>(nullptr);
  auto* scaler = accelerate == nullptr ? nullptr : accelerate->scaler();
  return scaler != nullptr && scaler->is_enabled() ? scaler : nullptr;
}

/// The model's own values while it lives, where an average stands in for them; or the other way
/// round.
class SwapScope {
 public:
  SwapScope(Trainer& trainer, bool want_average) : ema_(trainer.get_hook<EMAHook>(nullptr)) {
    if (ema_ != nullptr && ema_->is_swapped() == want_average) ema_ = nullptr;
    if (ema_ != nullptr) ema_->swap();
  }
  ~SwapScope() {
    if (ema_ != nullptr) ema_->swap();
  }
  SwapScope(const SwapScope&) = delete;
  SwapScope& operator=(const SwapScope&) = delete;

 private:
  EMAHook* ema_;
};

StateTree averaged_weights(Trainer& trainer) {
  const SwapScope average(trainer, /*want_average=*/true);
  return weights_of(trainer);
}

/// Gradients of an accumulation window that is open: between batches, or in one before its backward
/// pass.
StateTree open_gradients(Trainer& trainer) {
  auto grads = StateTree::dict();
  const auto& state = trainer.step_state();
  if (!trainer.training() || state.batch_idx % state.grad_accum_steps == 0) return grads;
  for (const auto& item : trainer.model().named_parameters())
    if (item.value().grad().defined()) grads.set(item.key(), item.value().grad());
  return grads;
}

void load_gradients(Trainer& trainer, const StateTree& grads) {
  for (auto& item : trainer.model().named_parameters())
    if (const auto* grad = grads.find(item.key()))
      item.value().mutable_grad() = grad->as_tensor().to(item.value().device()).clone();
}

void load_random_state(const StateTree& snapshot) {
  if (const auto* cpu = snapshot.find("rng_torch"))
    device::set_cpu_rng_state(cpu->as_tensor().clone());
  if (const auto* gpu = snapshot.find("rng_cuda"))
    device::set_gpu_rng_states({gpu->as_tensor().clone()});
}

int64_t int_or(const StateTree& snapshot, const char* key, int64_t otherwise) {
  const auto* value = snapshot.find(key);
  return value == nullptr ? otherwise : value->as_int();
}

}  // namespace

StateTree trainer_snapshot(Trainer& trainer) {
  const auto& counters = trainer.step_state();
  auto state = StateTree::dict();
  {
    const SwapScope own(trainer, /*want_average=*/false);
    state.set("model", weights_of(trainer));
    state.set("opt", trainer.optim().state_dict());
  }
  state.set("epoch", counters.epoch);
  state.set("batch_idx", counters.batch_idx);
  state.set("phase", trainer.training() ? "train" : "valid");
  state.set("optimizer_step", counters.optimizer_step);
  state.set("samples_seen", counters.samples_seen);
  state.set("rng_torch", device::get_cpu_rng_state());
  state.set("rng_numpy", numpy_random_state(0));
  if (trainer.device().is_cuda()) {
    const auto states = device::get_gpu_rng_states();
    state.set("rng_cuda", states.at(size_t(std::max<int64_t>(trainer.device().index(), 0))));
  }
  if (const auto* scaler = scaler_of(trainer)) state.set("scaler", scaler->state_dict());
  if (const auto* schedule = trainer.get_hook<LRSchedulerHook>(nullptr))
    state.set("scheduler", schedule->scheduler().state_dict());
  if (const auto* ema = trainer.get_hook<EMAHook>(nullptr)) {
    state.set("ema", averaged_weights(trainer));
    // CheckpointHook runs before EMAHook, as in trainer-tools: the average lacks the last step.
    if (ema->is_behind(trainer)) state.set("ema_is_behind", true);
  }
  if (const auto* metrics = trainer.get_hook<MetricsHook>(nullptr))
    state.set("metrics", metrics->save_state());
  if (auto grads = open_gradients(trainer); !grads.entries().empty())
    state.set("grads", std::move(grads));
  if (const auto loader = trainer.loader_state(); !loader.is_null())
    state.set("loader", loader.dump());
  return state;
}

void load_snapshot(Trainer& trainer, const StateTree& snapshot) {
  trainer.model().to(trainer.device());
  StateDict weights;
  for (const auto& [key, value] : snapshot.at("model").entries())
    weights.insert(std::get<std::string>(key), value.as_tensor());
  named_model(trainer)->load_state_dict(weights);
  trainer.optim().load_state_dict(snapshot.at("opt"));

  auto& counters = trainer.step_state();
  counters.optimizer_step = int_or(snapshot, "optimizer_step", int_or(snapshot, "step", 0));
  counters.samples_seen = int_or(snapshot, "samples_seen", 0);
  const auto* phase = snapshot.find("phase");
  const auto* loader = snapshot.find("loader");
  const bool in_validation = phase != nullptr && phase->as_string() == "valid";
  trainer.resume_at({.epoch = int_or(snapshot, "epoch", 0),
                     .batch_idx = int_or(snapshot, "batch_idx", 0),
                     .in_validation = in_validation,
                     .loader_state = loader == nullptr
                                         ? nlohmann::json()
                                         : parse_json(loader->as_string(), "the loader's state")});

  load_random_state(snapshot);
  if (const auto* grads = snapshot.find("grads")) load_gradients(trainer, *grads);
  if (auto* scaler = scaler_of(trainer); scaler != nullptr && scaler->is_enabled())
    if (const auto* saved = snapshot.find("scaler")) scaler->load_state_dict(*saved);
  auto* schedule = trainer.get_hook<LRSchedulerHook>(nullptr);
  if (const auto* saved = snapshot.find("scheduler")) {
    if (schedule != nullptr)
      schedule->scheduler().load_state_dict(*saved);
    else
      log_warning("The checkpoint has the state of a schedule, but there is no LRSchedulerHook.");
  }
  auto* ema = trainer.get_hook<EMAHook>(nullptr);
  if (const auto* saved = snapshot.find("ema"); saved != nullptr && ema != nullptr)
    ema->restore(*saved, snapshot.contains("ema_is_behind"));
  auto* metrics = trainer.get_hook<MetricsHook>(nullptr);
  if (const auto* saved = snapshot.find("metrics"); saved != nullptr && metrics != nullptr)
    metrics->load_state(*saved, in_validation);
}

StateTree exported_weights(Trainer& trainer) {
  return trainer.get_hook<EMAHook>(nullptr) == nullptr ? weights_of(trainer)
                                                       : averaged_weights(trainer);
}

}  // namespace gradus::hooks
