#include <gradus/core/error.h>
#include <gradus/kernels/fused.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/layers/no_dropout.h>

#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "models/layers/dropout_mask.h"
#include "models/layers/turned_weights.h"

namespace gradus::layers {

using torch::Tensor;

namespace {

Tensor without_values(torch::IntArrayRef sizes) { return torch::empty(sizes, torch::kFloat); }

/// The linear layer whose weight lies as (in, out).
Tensor linear_by_turned(const Tensor& x, const Tensor& turned, const Tensor& bias) {
  const auto rows = x.reshape({-1, x.size(-1)});
  auto sizes = x.sizes().vec();
  sizes.back() = turned.size(1);
  return (bias.defined() ? at::addmm(bias, rows, turned) : at::mm(rows, turned)).view(sizes);
}

/// The adapter's product where it is fused with the layer; without `a` where there is nothing to
/// add.
std::optional<kernels::LowRank> fused_adapter(const LayerAdapter* adapter, const Tensor& x,
                                              const Tensor& weight, const Tensor& bias) {
  if (adapter == nullptr) return std::nullopt;
  auto low = adapter->low_rank();
  if (low && low->a.defined() && !kernels::lora_linear_applies(x, weight, bias, *low)) low.reset();
  return low;
}

[[noreturn]] void throw_bad_id(const std::string& what, int64_t lowest, int64_t highest,
                               int64_t count) {
  const auto id = lowest < 0 ? lowest : highest;
  const auto* advice =
      what == "position_ids"
          ? "The row is longer than the model's positions. Use shorter rows (--block_size, "
            "--max_seq_length, --max_length or a shorter prompt), or a model with more positions."
          : "The tokenizer and the model do not belong together. Use the tokenizer of the model's "
            "folder, or resize_token_embeddings().";
  throw Error("G-MODEL-9", ErrorKind::model,
              fmt::format("{} holds {}, but the model's table has {} rows (0 to {})", what, id,
                          count, count - 1),
              advice);
}

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) {
  weight = register_parameter("weight", without_values({out_features, in_features}));
  if (with_bias) bias = register_parameter("bias", without_values({out_features}));
}

Tensor Linear::forward(const Tensor& x) const {
  const auto low = fused_adapter(adapter.get(), x, weight, bias);
  if (low && low->a.defined()) return kernels::lora_linear(x, weight, bias, *low);
  const auto turned = TurnedWeights::find(weight, x);
  const auto y =
      turned.defined() ? linear_by_turned(x, turned, bias) : kernels::linear(x, weight, bias);
  return adapter && !low ? adapter->forward(x, y) : y;
}

void Linear::tie(const Tensor& shared) {
  weight = shared;
  parameters_["weight"] = shared;
}

void Linear::tie_bias(const Tensor& shared) {
  bias = shared;
  if (parameters_.contains("bias"))
    parameters_["bias"] = shared;
  else
    register_parameter("bias", shared);
}

Conv1D::Conv1D(int64_t in_features, int64_t out_features) {
  weight = register_parameter("weight", without_values({in_features, out_features}));
  bias = register_parameter("bias", without_values({out_features}));
}

Tensor Conv1D::forward(const Tensor& x) const {
  const auto low = fused_adapter(adapter.get(), x, weight, bias);
  if (low && low->a.defined()) return kernels::lora_linear(x, weight, bias, *low, /*in_out=*/true);
  const auto y = kernels::linear_in_out(x, weight, bias);
  return adapter && !low ? adapter->forward(x, y) : y;
}

Embedding::Embedding(int64_t count, int64_t width, std::optional<int64_t> padding, std::string what)
    : padding_index(padding), what_(std::move(what)) {
  weight = register_parameter("weight", without_values({count, width}));
}

Tensor Embedding::forward(const Tensor& ids) const {
  if (ids.is_cpu() && ids.numel() > 0) {
    const auto [lowest, highest] = ids.aminmax();
    const auto low = lowest.item<int64_t>(), high = highest.item<int64_t>();
    if (low < 0 || high >= weight.size(0)) throw_bad_id(what_, low, high, weight.size(0));
  }
  const auto y = at::embedding(weight, ids, padding_index.value_or(-1));
  return adapter ? adapter->forward(ids, y) : y;
}

Tensor Embedding::first(int64_t count) const {
  if (count > weight.size(0)) throw_bad_id(what_, 0, count - 1, weight.size(0));
  const auto y = weight.narrow(0, 0, count);
  if (!adapter) return y;
  return adapter->forward(at::arange(count, at::device(weight.device()).dtype(at::kLong)), y);
}

void Embedding::tie(const Tensor& shared) {
  weight = shared;
  parameters_["weight"] = shared;
}

RMSNorm::RMSNorm(int64_t width, double epsilon) : eps(epsilon) {
  weight = register_parameter("weight", torch::ones({width}));
}

Tensor RMSNorm::forward(const Tensor& x) const { return kernels::rms_norm(x, weight, eps); }

Tensor dropout(const Tensor& x, double p, bool training) {
  if (!training || p <= 0.0 || NoDropout::is_on()) return x;
  const bool drawn_here = x.is_cpu() && x.scalar_type() == torch::kFloat && x.numel() > 0 &&
                          p < 1.0 && dropout_mask_equals_aten();
  return drawn_here ? x * dropout_mask(x, p) : at::dropout(x, p, true);
}

}  // namespace gradus::layers
