#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/no_dropout.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/recorded_random.h"
#include "kernels/single_use.h"

namespace gradus::layers {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

using Block = std::function<Tensor(const std::vector<Tensor>&)>;

Tensor generator_state(const torch::Device& device) {
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const torch::Device& device, const Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

/// The random numbers that come next, on the CPU and on the device of a tensor. In work that is
/// being recorded the GPU's generator neither tells its state nor goes back: there only blocks that
/// draw no numbers can be repeated.
class RandomPlace {
 public:
  explicit RandomPlace(const Tensor& like) : cpu_(generator_state(torch::kCPU)) {
    if (like.is_cpu()) return;
    recorded_ = kernels::recorded_random_place(like);
    if (!recorded_) gpu_ = generator_state(like.device());
  }

  void restore(const Tensor& like) const {
    set_generator_state(torch::kCPU, cpu_);
    if (gpu_.defined()) set_generator_state(like.device(), gpu_);
  }
  /// Throws when numbers were drawn since and `restore` could not bring them back.
  void expect_restorable(const Tensor& like) const {
    if (recorded_ && kernels::recorded_random_place(like) != recorded_)
      throw std::runtime_error(
          "gradient checkpointing would have to draw random numbers (of a dropout) twice, which "
          "cannot be recorded");
  }

 private:
  Tensor cpu_, gpu_;
  std::optional<uint64_t> recorded_;
};

/// Autocast as it was in forward, for the computation in backward.
class SameAutocast {
 public:
  explicit SameAutocast(torch::DeviceType type)
      : type_(type),
        enabled_(at::autocast::is_autocast_enabled(type)),
        dtype_(at::autocast::get_autocast_dtype(type)) {}
  void set() const {
    at::autocast::set_autocast_enabled(type_, enabled_);
    at::autocast::set_autocast_dtype(type_, dtype_);
  }

 private:
  torch::DeviceType type_;
  bool enabled_;
  at::ScalarType dtype_;
};

/// Keeps casts of weights out of autocast's cache. Those of forward have no history, those of
/// backward would outlive the optimizer's step: neither may be met again.
class WithoutCastCache {
 public:
  WithoutCastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(before_); }

 private:
  bool before_;
};

struct Held : torch::CustomClassHolder {
  Held(Block block, const Tensor& input, const GradientCheckpointing& how)
      : block(std::move(block)), device(input.device()), how(how), autocast(device.type()) {
    if (how.preserve_rng_state) random.emplace(input);
  }
  Block block;
  torch::Device device;
  GradientCheckpointing how;
  SameAutocast autocast;
  bool without_dropout = NoDropout::is_on();
  std::optional<RandomPlace> random;
};

/// The block once more, with gradients, as it was in forward; the surroundings are those of now
/// again afterwards.
Tensor run_again(const Held& held, const std::vector<Tensor>& inputs) {
  const SameAutocast autocast_now(held.device.type());
  const auto random_now = held.random ? std::optional<RandomPlace>(inputs[0]) : std::nullopt;
  const auto restore_now = [&] {
    autocast_now.set();
    if (random_now) random_now->restore(inputs[0]);
  };
  const WithoutCastCache no_cache;
  const NoDropout no_dropout(held.without_dropout);
  const kernels::SingleUse single_use;
  const at::AutoGradMode with_grad(true);
  held.autocast.set();
  if (held.random) held.random->restore(inputs[0]);
  try {
    auto y = held.block(inputs);
    restore_now();
    return y;
  } catch (...) {
    restore_now();
    throw;
  }
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::empty_like(tensor, tensor.options().device(torch::kCPU).pinned_memory(true))
      .copy_(tensor, /*non_blocking=*/true);
}

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static Tensor forward(AutogradContext* context, at::TensorList inputs,
                        const c10::intrusive_ptr<Held>& held) {
    const at::NoGradGuard no_grad;
    const WithoutCastCache no_cache;
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    auto kept = inputs.vec();
    if (held->how.offload)
      for (size_t i = 0; i < kept.size(); ++i)
        kept[i] = i > 0 && inputs[i].is_same(inputs[i - 1]) ? kept[i - 1] : on_host(inputs[i]);
    context->save_for_backward(std::move(kept));
    auto y = held->block(inputs.vec());
    if (held->random) held->random->expect_restorable(y);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto capsule = context->saved_data["held"].toCapsule();
    const auto& held = *static_cast<const Held*>(capsule.get());
    std::vector<Tensor> inputs;
    for (const auto& saved : context->get_saved_variables())
      inputs.push_back(saved.detach()
                           .to(held.device, /*non_blocking=*/true)
                           .requires_grad_(context->needs_input_grad(inputs.size())));
    torch::autograd::backward({run_again(held, inputs)}, {grads[0]});
    variable_list result;
    for (const auto& input : inputs) result.push_back(input.grad());
    result.emplace_back();
    return result;
  }
};

}  // namespace

Tensor checkpoint(const Block& block, const std::vector<Tensor>& inputs,
                  const GradientCheckpointing& how) {
  if (!at::GradMode::is_enabled()) return block(inputs);
  auto given = inputs;
  // Parameters inside need gradients even where the input does not.
  if (!given[0].requires_grad()) given[0] = given[0].detach().requires_grad_(true);
  return CheckpointFunction::apply(at::TensorList(given),
                                   c10::make_intrusive<Held>(block, given[0], how));
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& block, const Tensor& x,
                  const GradientCheckpointing& how) {
  return checkpoint(Block([block](const std::vector<Tensor>& inputs) { return block(inputs[0]); }),
                    {x}, how);
}

}  // namespace gradus::layers
