#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gradus/device/attention_backend.h>
#include <gradus/device/runtime.h>
#include <torch/cuda.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace gradus::device {
namespace {

struct Backend {
  const char* name;
  at::SDPBackend id;
};
constexpr std::array<Backend, 4> kBackends = {{{"cudnn", at::SDPBackend::cudnn_attention},
                                               {"flash", at::SDPBackend::flash_attention},
                                               {"efficient", at::SDPBackend::efficient_attention},
                                               {"math", at::SDPBackend::math}}};

struct Allowed {
  bool cudnn, flash, efficient, math;
};

Allowed allowed_now() {
  auto& context = at::globalContext();
  return {context.userEnabledCuDNNSDP(), context.userEnabledFlashSDP(),
          context.userEnabledMemEfficientSDP(), context.userEnabledMathSDP()};
}

void allow(const Allowed& which) {
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(which.cudnn);
  context.setSDPUseFlash(which.flash);
  context.setSDPUseMemEfficient(which.efficient);
  context.setSDPUseMath(which.math);
}

// Leaves the choice and the random numbers as they were.
struct Restore {
  Allowed before = allowed_now();
  std::vector<torch::Tensor> random = get_gpu_rng_states();
  ~Restore() {
    allow(before);
    set_gpu_rng_states(random);
  }
};

double time_of(const AttentionShape& shape, torch::Device device) {
  constexpr int kWarm = 2, kTimed = 5;
  const auto options = torch::dtype(shape.dtype).device(device);
  const auto make = [&](int64_t heads) {
    return at::randn({shape.batch, shape.tokens, heads, shape.width}, options)
        .transpose(1, 2)
        .requires_grad_();
  };
  const auto query = make(shape.heads), key = make(shape.key_heads), value = make(shape.key_heads);
  const auto gradient =
      at::randn({shape.batch, shape.tokens, shape.heads, shape.width}, options).transpose(1, 2);
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kWarm + kTimed; ++i) {
    if (i == kWarm) {
      torch::cuda::synchronize(device.index());
      start = std::chrono::steady_clock::now();
    }
    at::scaled_dot_product_attention(query, key, value, {}, shape.dropout, shape.causal, {},
                                     shape.heads != shape.key_heads)
        .backward(gradient);
    for (const auto& tensor : {query, key, value}) tensor.mutable_grad().reset();
  }
  torch::cuda::synchronize(device.index());
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
             .count() /
         kTimed;
}

}  // namespace

std::vector<AttentionTime> measure_attention(const AttentionShape& shape, torch::Device device) {
  const Restore restore;
  const torch::AutoGradMode with_gradients(true);
  std::vector<AttentionTime> times;
  for (const auto& backend : kBackends) {
    if (backend.id == at::SDPBackend::math && !times.empty())
      continue;  // never the fastest, and large
    allow({backend.id == at::SDPBackend::cudnn_attention,
           backend.id == at::SDPBackend::flash_attention,
           backend.id == at::SDPBackend::efficient_attention, backend.id == at::SDPBackend::math});
    try {
      times.push_back({backend.name, time_of(shape, device)});
    } catch (const c10::Error&) {
      continue;  // cannot do this shape or dtype, or is not on this card
    }
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.milliseconds < b.milliseconds; });
  return times;
}

void prefer_attention(const std::string& name) {
  const auto* found = std::find_if(kBackends.begin(), kBackends.end(),
                                   [&](const auto& backend) { return name == backend.name; });
  if (found == kBackends.end()) return;
  auto& context = at::globalContext();
  std::vector<int64_t> order = {int64_t(found->id)};
  for (const auto backend : context.sDPPriorityOrder())
    if (backend != found->id) order.push_back(int64_t(backend));
  context.setSDPPriorityOrder(order);
}

void use_deterministic_attention() {
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(false);
  context.setSDPUseMemEfficient(false);
}

}  // namespace gradus::device
