#include <gradus/kernels/fused.h>
#include <gradus/models/layers/residual_stream.h>

#include <algorithm>

namespace gradus::layers {

namespace {

/// Whether the adapters' products may run together with the projections.
bool fuses(const std::vector<kernels::LowRank>& lows, const torch::Tensor& x,
           const torch::Tensor& weight) {
  return std::ranges::all_of(lows, [&](const auto& low) {
    return !low.a.defined() || kernels::lora_linear_applies(x, weight, {}, low);
  });
}

}  // namespace

torch::Tensor ResidualStream::normed(const torch::nn::LayerNormImpl& norm) {
  if (!pending_.defined())
    return kernels::layer_norm(total_, norm.weight, norm.bias, norm.options.eps());
  auto [sum, out] =
      kernels::add_layer_norm(total_, pending_, norm.weight, norm.bias, norm.options.eps());
  total_ = sum;
  pending_.reset();
  return out;
}

torch::Tensor ResidualStream::normed(const RMSNorm& norm) {
  if (!pending_.defined()) return norm.forward(total_);
  auto [sum, out] = kernels::add_rms_norm(total_, pending_, norm.weight, norm.eps);
  total_ = sum;
  pending_.reset();
  return out;
}

std::vector<torch::Tensor> ResidualStream::projected(
    const RMSNorm& norm, const std::vector<std::shared_ptr<Linear>>& projections) {
  std::vector<torch::Tensor> weights, biases, outputs;
  std::vector<kernels::LowRank> lows;
  for (const auto& projection : projections) {
    weights.push_back(projection->weight);
    if (projection->bias.defined()) biases.push_back(projection->bias);
    const auto low =
        projection->adapter ? projection->adapter->low_rank() : std::optional(kernels::LowRank());
    if (low) lows.push_back(*low);
  }
  // Adapters that do more, and those of another precision, want the projections' own forward.
  const bool is_fused = lows.size() == weights.size() && fuses(lows, total_, weights[0]);
  if (!is_fused) {
    const auto x = normed(norm);
    for (const auto& projection : projections) outputs.push_back(projection->forward(x));
    return outputs;
  }
  const auto& last = pending_.defined() ? pending_ : total_;
  auto result = kernels::add_rms_norm_linear(pending_.defined() ? total_ : torch::Tensor(), last,
                                             norm.weight, norm.eps, weights, biases, lows);
  total_ = result.sum;
  pending_.reset();
  return result.outputs;
}

void ResidualStream::add(const torch::Tensor& x) {
  total_ = sum();
  pending_ = x;
}

torch::Tensor ResidualStream::sum() {
  if (pending_.defined()) total_ = total_ + pending_;
  pending_.reset();
  return total_;
}

}  // namespace gradus::layers
