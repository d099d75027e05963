#include "models/fp8_layers.h"

#include <gradus/core/error.h>
#include <gradus/models/layers/linear.h>

#include <algorithm>

namespace gradus {
namespace {

constexpr int64_t kSmallestFp8 = 128;  // below, casts take longer than what the product gains

/// "model.layers.3.mlp.up_proj" is in a block, "lm_head" is not.
bool is_in_block(const std::string& name) {
  size_t first = 0;
  while (first < name.size()) {
    const auto end = std::min(name.find('.', first), name.size());
    if (end > first && name.find_first_not_of("0123456789", first) >= end) return true;
    first = end + 1;
  }
  return false;
}

template <class Layer>
void add_weight(const torch::nn::Module& module, std::vector<torch::Tensor>& weights) {
  // Modules have no common interface for their weights.
  const auto* layer = dynamic_cast<const Layer*>(&module);
  if (layer == nullptr || layer->adapter) return;
  const auto& weight = layer->weight;
  if (std::ranges::all_of(weight.sizes(),
                          [](int64_t size) { return size >= kSmallestFp8 && size % 16 == 0; }))
    weights.push_back(weight);
}

}  // namespace

std::vector<torch::Tensor> fp8_layer_weights(const torch::nn::Module& model) {
  std::vector<torch::Tensor> weights;
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    if (!is_in_block(entry.key()) || entry.key().find(".lora_") != std::string::npos) continue;
    add_weight<layers::Linear>(*entry.value(), weights);
    add_weight<layers::Conv1D>(*entry.value(), weights);
  }
  if (weights.empty())
    throw Error("G-GPU-2", ErrorKind::usage,
                "fp8: the model has no linear layer that it applies to: expected one in a block, "
                "without an adapter, 128 or more wide and high in steps of 16",
                "Leave --fp8 out.");
  return weights;
}

}  // namespace gradus
