#include <gradus/models/layers/checkpoint.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

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

/// The random numbers and the autocast state of a moment.
struct Surroundings {
  explicit Surroundings(torch::Device device) : device(device), cpu(generator_state(torch::kCPU)) {
    if (!device.is_cpu()) gpu = generator_state(device);
    autocast = at::autocast::is_autocast_enabled(device.type());
    autocast_dtype = at::autocast::get_autocast_dtype(device.type());
  }

  void restore() const {
    set_generator_state(torch::kCPU, cpu);
    if (gpu.defined()) set_generator_state(device, gpu);
    at::autocast::set_autocast_enabled(device.type(), autocast);
    at::autocast::set_autocast_dtype(device.type(), autocast_dtype);
  }

  torch::Device device;
  Tensor cpu, gpu;
  bool autocast;
  at::ScalarType autocast_dtype;
};

struct RestoreLater {
  explicit RestoreLater(torch::Device device) : before(device) {}
  ~RestoreLater() { before.restore(); }
  Surroundings before;
};

struct Held : torch::CustomClassHolder {
  Held(Block block, torch::Device device) : block(std::move(block)), surroundings(device) {}
  Block block;
  Surroundings surroundings;
};

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static Tensor forward(AutogradContext* context, at::TensorList inputs, const c10::intrusive_ptr<Held>& held) {
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    context->save_for_backward(inputs.vec());
    at::NoGradGuard no_grad;
    return held->block(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto capsule = context->saved_data["held"].toCapsule();
    const auto& held = *static_cast<const Held*>(capsule.get());
    std::vector<Tensor> inputs;
    for (const auto& saved : context->get_saved_variables()) inputs.push_back(saved.detach().requires_grad_(context->needs_input_grad(inputs.size())));
    Tensor y;
    {
      RestoreLater later(inputs[0].device());
      held.surroundings.restore();
      at::AutoGradMode with_grad(true);
      y = held.block(inputs);
    }
    torch::autograd::backward({y}, {grads[0]});
    variable_list result;
    for (const auto& input : inputs) result.push_back(input.grad());
    result.emplace_back();
    return result;
  }
};

}  // namespace

Tensor checkpoint(const Block& block, const std::vector<Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return block(inputs);
  auto given = inputs;
  // Parameters inside need gradients even where the input does not.
  if (!given[0].requires_grad()) given[0] = given[0].detach().requires_grad_(true);
  return CheckpointFunction::apply(at::TensorList(given), c10::make_intrusive<Held>(block, given[0].device()));
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& block, const Tensor& x) {
  return checkpoint(Block([block](const std::vector<Tensor>& inputs) { return block(inputs[0]); }), {x});
}

}  // namespace gradus::layers
