#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/kernels/fused.h>
#include <gradus/models/layers/activation.h>

#include <ATen/ops/erf.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <numbers>

namespace gradus::layers {

using torch::Tensor;

namespace {

Tensor gelu(const Tensor& x) { return at::gelu(x); }
Tensor gelu_tanh(const Tensor& x) { return at::gelu(x, "tanh"); }
Tensor gelu_clipped(const Tensor& x) { return at::gelu(x).clamp(-10, 10); }
Tensor quick_gelu(const Tensor& x) { return x * at::sigmoid(1.702 * x); }
Tensor relu_squared(const Tensor& x) { return at::relu(x).square(); }
Tensor leaky_relu(const Tensor& x) { return at::leaky_relu(x); }
Tensor laplace(const Tensor& x) {
  return 0.5 * (1.0 + at::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)));
}
Tensor sqrt_softplus(const Tensor& x) { return at::softplus(x).sqrt(); }
Tensor identity(const Tensor& x) { return x; }

struct Entry {
  const char* name;
  Activation function;
};

constexpr std::array kActivations = {
    Entry{"gelu", gelu},
    Entry{"gelu_10", gelu_clipped},
    Entry{"gelu_accurate", gelu_tanh},
    Entry{"gelu_fast", gelu_tanh},
    Entry{"gelu_new", gelu_tanh},
    Entry{"gelu_python", gelu},
    Entry{"gelu_python_tanh", gelu_tanh},
    Entry{"gelu_pytorch_tanh", gelu_tanh},
    Entry{"hardswish", at::hardswish},
    Entry{"laplace", laplace},
    Entry{"leaky_relu", leaky_relu},
    Entry{"linear", identity},
    Entry{"mish", at::mish},
    Entry{"quick_gelu", quick_gelu},
    Entry{"relu", at::relu},
    Entry{"relu2", relu_squared},
    Entry{"relu6", at::relu6},
    Entry{"sigmoid", at::sigmoid},
    Entry{"silu", at::silu},
    Entry{"sqrtsoftplus", sqrt_softplus},
    Entry{"swish", at::silu},
    Entry{"tanh", at::tanh},
};

}  // namespace

Activation activation_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : kActivations) {
    if (name == entry.name) return entry.function;
    names.emplace_back(entry.name);
  }
  throw Error("G-MODEL-5", ErrorKind::model,
              fmt::format("config.json: unknown activation function \"{}\"", name),
              fmt::format("{}{}Known are {}.", did_you_mean(name, names),
                          did_you_mean(name, names).empty() ? "" : " ", fmt::join(names, ", ")));
}

Tensor swiglu(const Tensor& gate, const Tensor& up) { return kernels::swiglu(gate, up); }

}  // namespace gradus::layers
