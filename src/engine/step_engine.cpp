#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/device/attention_backend.h>
#include <gradus/device/gpu.h>
#include <gradus/engine/step_engine.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/optimizer_kernels.h>
#include <gradus/models/model.h>
#include <gradus/optim/clip.h>

#include <set>

#include "engine/device_schedule.h"
#include "engine/eval_graphs.h"
#include "engine/step_graphs.h"

namespace gradus {
namespace {

std::vector<torch::Tensor> defined_gradients(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> grads;
  for (const auto& parameter : parameters)
    if (parameter.grad().defined()) grads.push_back(parameter.grad());
  return grads;
}

}  // namespace

StepEngine::StepEngine(torch::Device device, torch::ScalarType dtype,
                       std::shared_ptr<Strategy> strategy)
    : device_(device), precision_(device, dtype) {
  set_strategy(std::move(strategy));
}

StepEngine::~StepEngine() = default;

void StepEngine::set_strategy(std::shared_ptr<Strategy> strategy) {
  strategy_ = strategy ? std::move(strategy) : std::make_shared<Strategy>();
}

void StepEngine::set_device(torch::Device device, torch::ScalarType dtype) {
  device_ = device;
  precision_ = Precision(device, dtype);
}

// The model's parameters that get gradients although the optimizer does not have them; usually
// none.
std::vector<torch::Tensor> StepEngine::bystanders() const {
  if (!optimizer_) return {};
  std::set<const c10::TensorImpl*> known;
  for (const auto& parameter : all_parameters(*optimizer_))
    known.insert(parameter.unsafeGetTensorImpl());
  std::vector<torch::Tensor> others;
  for (const auto& [name, parameter] : trainable_parameters(*model_))
    if (!known.contains(parameter.unsafeGetTensorImpl())) others.push_back(parameter);
  return others;
}

// The model's trainable parameters in its order, which decides the last bit of the norm, then
// what else the optimizer has.
std::vector<torch::Tensor> StepEngine::trained() const {
  std::vector<torch::Tensor> found;
  std::set<const c10::TensorImpl*> known;
  const auto take = [&](const torch::Tensor& parameter) {
    if (known.insert(parameter.unsafeGetTensorImpl()).second) found.push_back(parameter);
  };
  for (const auto& [name, parameter] : trainable_parameters(*model_)) take(parameter);
  if (optimizer_)
    for (const auto& parameter : all_parameters(*optimizer_)) take(parameter);
  return found;
}

// Who trains what is decided before the optimizer is given parts in place of parameters.
void StepEngine::prepare(torch::nn::Module& model) {
  model_ = &model;
  strategy_->prepare(model);
  bystanders_ = bystanders();
  parameters_ = trained();
  if (optimizer_) strategy_->attach(*optimizer_);
  is_prepared_ = true;
}

void StepEngine::begin(torch::nn::Module& model, StepOptions options) {
  options_ = std::move(options);
  place_ = {};
  window_is_open_ = false;
  if (!is_prepared_ || model_ != &model) prepare(model);
  if (strategy_->is_sharded())
    precision_.set_half_weights(strategy_->holds_masters());
  else if (options_.master_weights && optimizer_->can_train_masters())
    precision_.hold_masters(model, *optimizer_);
  else if (options_.master_weights)
    log_warning(
        fmt::format("The optimizer {} cannot train master weights: bf16 runs with autocast "
                    "over float32 weights.",
                    optimizer_->name()));
  if (auto* scaler = precision_.scaler()) scaler->set_shares(strategy_->world_size());
  clipped_ = options_.clipped.empty() ? parameters_ : options_.clipped;
  if (!device_.is_cuda()) return;
  if (!precision_.has_masters()) model.to(device_);  // frozen weights may have waited on the host

  stream_ = device::own_stream(device_);
  if (schedule_ && precision_.scaler() != nullptr && optimizer_->takes_device_lr() &&
      optimizer_->skips_on_device())
    device_schedule_ = DeviceSchedule::leading(*schedule_, options_.max_steps, device_);
  if (options_.record) begin_recording(options_.plain_because);
}

void StepEngine::begin_recording(std::string plain_because) {
  if (!device::has_plugin())
    plain_because = "libgradus_cuda.so is " + device::plugin_text();
  else if (plain_because.empty() && !bystanders_.empty())
    plain_because =
        "the optimizer does not have all of the model's parameters, whose gradients count in the "
        "norm";
  else if (plain_because.empty() && !strategy_->is_recordable())
    plain_because = "the processes synchronize their gradients from the host";
  if (!plain_because.empty()) return log_info("CUDA graphs are not used: " + plain_because);

  // Work that makes the host wait shows in a plain step, which is then repeated. Where other
  // processes have a part in that step it must not be: there it shows when it is recorded.
  graphs_ = std::make_unique<StepGraphs>(
      all_parameters(*optimizer_), device_,
      strategy_->world_size() == 1 ? StepGraphs::Watch::on : StepGraphs::Watch::off);
  eval_graphs_ = std::make_unique<EvalGraphs>();
  if (schedule_ && precision_.scaler() == nullptr && optimizer_->takes_device_lr())
    device_schedule_ = DeviceSchedule::following(*schedule_, optimizer_->param_groups(),
                                                 options_.max_steps, device_);
}

void StepEngine::end() {
  strategy_->release();
  is_prepared_ = false;
  precision_.set_half_weights(false);
  graphs_.reset();
  eval_graphs_.reset();
  device_schedule_.reset();
  clip_coefficient_.reset();
  replayed_norm_.reset();
  precision_.release_masters();
  stream_.reset();
  attention_is_chosen_ = false;
  place_ = {};
}

Batch StepEngine::upload(Batch inputs) const {
  if (device_.is_cpu()) return inputs;
  return inputs.with_copies(device::upload(inputs.tensors(), device_));
}

torch::Tensor StepEngine::micro_batch(const Batch& inputs,
                                      const std::optional<torch::Tensor>& num_items,
                                      const WindowPlace& place, const Work& work) {
  place_ = place;
  gradients_are_synced_ = gradients_are_shared_ = false;
  if (!std::exchange(window_is_open_, !place.is_last)) strategy_->begin_window();
  const auto no_sync = place.is_last ? nullptr : strategy_->no_sync();
  if (place.is_last && device_schedule_) device_schedule_->follow(optimizer_->param_groups());
  // What the processes do belongs to the work: it is recorded with it.
  const Work shared_work = [&](const Batch& batch, const std::optional<torch::Tensor>& items) {
    gradients_are_shared_ = false;
    strategy_->begin_micro_batch();
    auto loss = work(batch, items);
    if (!place.is_last)
      strategy_->end_micro_batch();
    else if (graphs_)
      share_gradients();
    return loss;
  };
  if (!graphs_ || inputs.empty()) return shared_work(inputs, num_items);

  std::optional<StepGraphs::Update> update;
  if (place.is_last && update_is_recordable()) {
    update.emplace();
    update->kind = fmt::format("u{}", optimizer_->arrangement());
    for (const auto& group : optimizer_->param_groups())
      update->kind += fmt::format(",{}", group.weight_decay);
    update->run = [this] {
      const auto norm = clip();
      step();
      return norm;
    };
  }
  auto result = graphs_->run(upload(inputs), num_items, place.size, shared_work, update);
  gradients_are_shared_ = place.is_last;
  replayed_norm_ = std::move(result.norm);
  return result.loss;
}

// Whether clipping and the optimizer's step may be part of a recorded step: nothing of theirs is
// decided on the host, and nobody comes between them.
bool StepEngine::update_is_recordable() const {
  return device_schedule_ && optimizer_->is_recordable() && !place_.gradients_are_read;
}

void StepEngine::backward(const torch::Tensor& loss) {
  gradients_are_synced_ = gradients_are_shared_ = false;
  precision_.scale(loss).backward();
}

// Makes the gradients those of the whole batch, once in a window.
void StepEngine::share_gradients() {
  if (!std::exchange(gradients_are_shared_, true)) strategy_->sync_gradients(parameters_);
}

// The same, and unscales them.
void StepEngine::sync_gradients() {
  if (std::exchange(gradients_are_synced_, true)) return;
  share_gradients();
  auto* scaler = precision_.scaler();
  if (scaler == nullptr || !optimizer_) return;
  scaler->unscale_(*optimizer_);
  strategy_->sum_parts(scaler->found_inf());
}

double StepEngine::max_grad_norm() const {
  return !optimizer_ || optimizer_->takes_clipping() ? options_.max_grad_norm : 0.0;
}

// Each process measures and scales its own parts.
torch::Tensor StepEngine::clip_parts() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : clipped_) parts.push_back(strategy_->part_of(parameter));
  auto square = grad_norm(parts).to(torch::kDouble).square();
  strategy_->sum_parts(square);
  const auto norm = square.sqrt().to(torch::kFloat);
  if (max_grad_norm() <= 0) return norm;
  const auto factor = (norm + 1e-6).reciprocal_().mul_(max_grad_norm()).clamp_max_(1.0);
  for (auto& gradient : defined_gradients(parts)) gradient.mul_(factor);
  return norm;
}

torch::Tensor StepEngine::clip() {
  if (replayed_norm_) return *replayed_norm_;
  sync_gradients();
  if (strategy_->is_sharded()) return clip_parts();
  const double max_norm = max_grad_norm();
  if (!device_.is_cuda() || !kernels::have_cuda_kernels())
    return max_norm > 0 ? clip_grad_norm_(clipped_, max_norm) : grad_norm(clipped_);

  const auto grads = defined_gradients(clipped_);
  const auto norm = kernels::grad_norm(grads);
  if (max_norm <= 0) return norm;
  const auto coefficient = kernels::clip_coefficient(norm, max_norm);
  if (place_.gradients_are_read || !options_.clipped.empty())
    kernels::scale_(grads, coefficient);
  else
    clip_coefficient_ = coefficient;  // the optimizer's kernel applies it as it reads them
  return norm;
}

void StepEngine::step() {
  if (std::exchange(replayed_norm_, std::nullopt)) return;
  sync_gradients();
  auto* scaler = precision_.scaler();
  StepContext context;
  context.clip_coef = std::exchange(clip_coefficient_, std::nullopt);
  if (device_schedule_) context.lr = device_schedule_->rates();
  if (scaler != nullptr) {
    scaler->step(*optimizer_, context);
    scaler->update();
  } else {
    optimizer_->step(context);
  }
  strategy_->end_step();
  if (device_schedule_)
    device_schedule_->step(scaler != nullptr ? std::optional(scaler->found_inf()) : std::nullopt);
}

bool StepEngine::step_was_skipped() const {
  const auto* scaler = precision_.scaler();
  return scaler != nullptr && scaler->step_was_skipped();
}

std::optional<double> StepEngine::step_schedule() {
  if (device_schedule_ && device_schedule_->leads()) return std::nullopt;
  const double rate = optimizer_->param_groups().front().lr;
  if (schedule_ && !step_was_skipped() && !schedule_->is_metric_driven()) schedule_->step();
  return rate;
}

void StepEngine::zero_grad() {
  optimizer_->zero_grad();
  for (const auto& parameter : bystanders_) parameter.mutable_grad().reset();
  strategy_->drop_gradients();
}

ModelOutput StepEngine::forward(const Batch& inputs, const std::string& kind,
                                const std::function<ModelOutput(const Batch&)>& work) {
  return eval_graphs_ ? eval_graphs_->run(inputs, kind, work) : work(inputs);
}

std::optional<double> StepEngine::settle() {
  if (!device_schedule_ || !device_schedule_->leads()) return std::nullopt;
  return device_schedule_->settle();
}

void StepEngine::choose_attention(std::optional<AttentionShape> shape, bool deterministic) {
  attention_is_chosen_ = true;
  if (deterministic) {
    attention_backend_ = "flash";
  } else if (attention_backend_.empty()) {
    if (!shape) return;
    shape->dtype = precision_.dtype();
    const auto times = device::measure_attention(*shape, device_);
    if (times.empty()) return;
    attention_backend_ = times.front().name;
    std::string text;
    for (const auto& time : times)
      text += fmt::format("{}{} {:.3f} ms", text.empty() ? "" : ", ", time.name, time.milliseconds);
    log_info(fmt::format("Attention: {} (forward and backward of one layer: {}).",
                         attention_backend_, text));
  }
  device::prefer_attention(attention_backend_);
}

}  // namespace gradus
