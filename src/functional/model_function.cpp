#include <gradus/functional/model_function.h>

#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

namespace gradus::functional {
namespace {

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

/// torch's generators from a key while it lives.
class KeyScope {
 public:
  KeyScope(const std::optional<Key>& key, bool on_gpu) : active_(key.has_value()), on_gpu_(on_gpu) {
    if (!active_) return;
    cpu_ = device::get_cpu_rng_state();
    if (on_gpu_) gpus_ = device::get_gpu_rng_states();
    device::seed_all(int64_t(key->seed()));
  }
  ~KeyScope() {
    if (!active_) return;
    device::set_cpu_rng_state(cpu_);
    if (on_gpu_) device::set_gpu_rng_states(gpus_);
  }
  KeyScope(const KeyScope&) = delete;
  KeyScope& operator=(const KeyScope&) = delete;

 private:
  bool active_, on_gpu_;
  torch::Tensor cpu_;
  std::vector<torch::Tensor> gpus_;
};

/// The module in training or evaluation mode while it lives.
class ModeScope {
 public:
  ModeScope(torch::nn::Module& module, bool train)
      : module_(module), changed_(module.is_training() != train) {
    if (changed_) module_.train(train);
  }
  ~ModeScope() {
    if (changed_) module_.train(!module_.is_training());
  }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  torch::nn::Module& module_;
  bool changed_;
};

/// Other data in the same tensors while it lives: every handle to them, inside the module too, sees
/// it.
class DataScope {
 public:
  DataScope(const std::vector<torch::Tensor>& tensors, const std::vector<torch::Tensor>& data)
      : tensors_(tensors) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      own_.push_back(tensors_[i].tensor_data());
      tensors_[i].set_data(data[i]);
    }
  }
  ~DataScope() {
    for (size_t i = 0; i < own_.size(); ++i) tensors_[i].set_data(own_[i]);
  }
  DataScope(const DataScope&) = delete;
  DataScope& operator=(const DataScope&) = delete;

 private:
  std::vector<torch::Tensor> tensors_, own_;
};

torch::Tensor checked_loss(torch::Tensor loss) {
  if (!loss.defined() || loss.dim() != 0)
    throw Error(
        "G-FN-1", ErrorKind::training,
        loss.defined() ? fmt::format("the loss is not a scalar: it has the shape [{}]",
                                     fmt::join(loss.sizes().vec(), ", "))
                       : "the loss is an undefined tensor",
        "Let loss_fn (or the model, when there is none) return one number: take the mean or "
        "the sum.");
  return loss;
}

}  // namespace

struct ModelFunction::Shared {
  std::shared_ptr<torch::nn::Module> module;  // the one whose names count
  std::function<torch::Tensor(const Batch&)> forward;
  std::vector<std::string> names;
  std::vector<torch::Tensor> own;  // its parameters
  std::vector<std::string> buffer_names;
  std::vector<torch::Tensor> buffers;
  std::recursive_mutex calls;  // a forward may call the function again
};

/// The module set up for one call.
class ModelFunction::Call {
 public:
  Call(Shared& shared, const Params& params, const CallOptions& options)
      : shared_(shared),
        lock_(shared.calls),
        buffer_copies_(copies(options.train ? shared.buffers : std::vector<torch::Tensor>{})),
        params_(shared.own, checked(shared, params)),
        buffers_(options.train ? shared.buffers : std::vector<torch::Tensor>{}, buffer_copies_),
        mode_(*shared.module, options.train),
        key_(options.key, shared.own[0].is_cuda()) {
    for (const auto& buffer : shared.buffers) versions_.push_back(buffer._version());
  }
  ~Call() {
    for (size_t i = 0; i < buffer_copies_.size(); ++i)
      if (shared_.buffers[i]._version() != versions_[i])
        log_warning_once("the functional trainer drops what the model writes to its buffer '" +
                         shared_.buffer_names[i] +
                         "' while training: a step is a function of the parameters only. Use "
                         "layers without running statistics.");
  }

 private:
  static std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
    std::vector<torch::Tensor> result;
    for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
    return result;
  }
  static const std::vector<torch::Tensor>& checked(const Shared& shared, const Params& params) {
    if (params.names() != shared.names)
      throw Error("G-FN-3", ErrorKind::training,
                  fmt::format("the model was called with {} parameters that are not its {} own",
                              params.size(), shared.names.size()),
                  "Call it with the parameters of a state that was created for this model.");
    for (size_t i = 0; i < params.size(); ++i)
      if (params.values()[i].sizes() != shared.own[i].sizes())
        throw Error("G-FN-3", ErrorKind::training,
                    fmt::format("the model was called with '{}' of shape [{}], expected [{}]",
                                shared.names[i], fmt::join(params.values()[i].sizes().vec(), ", "),
                                fmt::join(shared.own[i].sizes().vec(), ", ")),
                    "Call it with the parameters of a state that was created for this model.");
    return params.values();
  }

  Shared& shared_;
  std::lock_guard<std::recursive_mutex> lock_;
  std::vector<torch::Tensor> buffer_copies_;
  DataScope params_, buffers_;
  ModeScope mode_;
  KeyScope key_;
  std::vector<uint32_t> versions_;
};

ModelFunction::ModelFunction(std::shared_ptr<torch::nn::Module> module,
                             std::function<torch::Tensor(const Batch&)> forward)
    : shared_(std::make_shared<Shared>()) {
  if (auto model = std::dynamic_pointer_cast<Model>(module))
    module = std::shared_ptr<torch::nn::Module>(model, &model->named_module());
  for (auto& [name, parameter] : trainable_parameters(*module)) {
    shared_->names.push_back(name);
    shared_->own.push_back(parameter);
  }
  for (const auto& buffer : module->named_buffers()) {
    if (!buffer.value().defined()) continue;
    shared_->buffer_names.push_back(buffer.key());
    shared_->buffers.push_back(buffer.value());
  }
  if (shared_->own.empty())
    throw Error("G-FN-3", ErrorKind::training, "the module has no parameters that need a gradient",
                "Wrap a module with parameters to train.");
  shared_->module = std::move(module);
  shared_->forward = std::move(forward);
}

torch::Tensor ModelFunction::operator()(const Params& params, const Batch& batch,
                                        const CallOptions& options) const {
  const torch::NoGradGuard no_grad;
  const Call call(*shared_, params, options);
  return shared_->forward(batch);
}

ValueAndGrad ModelFunction::value_and_grad(const Params& params, const Batch& batch,
                                           const LossFn& loss_fn,
                                           const CallOptions& options) const {
  const torch::AutoGradMode with_grad(true);
  const Call call(*shared_, params, options);
  const auto prediction = shared_->forward(batch);
  const auto loss = checked_loss(loss_fn ? loss_fn(prediction, batch) : prediction);
  if (!loss.requires_grad())
    throw Error("G-FN-1", ErrorKind::training, "the loss does not depend on the parameters",
                "Compute it from the model's output, without detach or NoGradGuard.");
  auto grads =
      torch::autograd::grad({loss}, shared_->own, {}, std::nullopt, false, /*allow_unused=*/true);
  for (size_t i = 0; i < grads.size(); ++i)
    if (!grads[i].defined()) grads[i] = at::zeros_like(params.values()[i]);
  return {loss.detach(), params.with(std::move(grads))};
}

Params ModelFunction::params() const {
  const std::lock_guard<std::recursive_mutex> lock(shared_->calls);
  std::vector<torch::Tensor> values;
  for (const auto& parameter : shared_->own) values.push_back(parameter.detach().clone());
  return {shared_->names, std::move(values)};
}

void ModelFunction::store(const Params& params) const {
  const std::lock_guard<std::recursive_mutex> lock(shared_->calls);
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < shared_->own.size(); ++i) shared_->own[i].copy_(params[shared_->names[i]]);
}

}  // namespace gradus::functional
