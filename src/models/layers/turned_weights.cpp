#include "models/layers/turned_weights.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

namespace gradus::layers {

using torch::Tensor;

namespace {

thread_local TurnedWeights* turned_weights = nullptr;

// Outside these bounds the weight itself is as fast: with fewer rows there is nothing to turn, with
// more it is little beside the multiplication.
constexpr int64_t kFewestRows = 4, kMostRows = 128;

}  // namespace

TurnedWeights::TurnedWeights() : before_(turned_weights) { turned_weights = this; }
TurnedWeights::~TurnedWeights() { turned_weights = before_; }

Tensor TurnedWeights::find(const Tensor& weight, const Tensor& x) {
  if (turned_weights == nullptr || !weight.is_cpu() || weight.scalar_type() != torch::kFloat ||
      x.scalar_type() != torch::kFloat || x.numel() == 0 || at::GradMode::is_enabled() ||
      at::autocast::is_autocast_enabled(at::kCPU))
    return {};
  const auto rows = x.numel() / x.size(-1);
  return rows < kFewestRows || rows > kMostRows ? Tensor() : turned_weights->turned(weight);
}

Tensor TurnedWeights::turned(const Tensor& weight) {
  const auto [place, is_new] = copies_.try_emplace(weight.unsafeGetTensorImpl());
  if (is_new || place->second.defined()) return place->second;
  const auto bytes = weight.numel() * weight.element_size();
  if (bytes_ + bytes > kMostBytes) return {};
  bytes_ += bytes;
  return place->second = weight.detach().t().contiguous();
}

}  // namespace gradus::layers
