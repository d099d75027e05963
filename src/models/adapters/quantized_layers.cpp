#include <gradus/core/error.h>
#include <gradus/kernels/nf4.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/quantized_layers.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "kernels/blockwise.h"

namespace gradus {
namespace {

/// Keeps the matrix as long as the layer lives.
class Nf4Holder : public torch::nn::Module {
 public:
  explicit Nf4Holder(kernels::Nf4Matrix matrix) : weight(std::move(matrix)) {}
  kernels::Nf4Weight weight;
};

/// "model.layers.3.mlp.up_proj" is in a block; "lm_head" and an adapter's own matrices are not.
bool is_layer_of_block(const std::string& name) {
  if (name.find(".lora_") != std::string::npos) return false;
  for (size_t first = 0; first < name.size();) {
    const auto end = std::min(name.find('.', first), name.size());
    if (end > first && name.find_first_not_of("0123456789", first) >= end) return true;
    first = end + 1;
  }
  return false;
}

}  // namespace

// The scales without their mean, in blocks of 256 with a common largest one.
kernels::Nf4Matrix nf4_nested(kernels::Nf4Matrix matrix) {
  const torch::NoGradGuard no_grad;
  const auto scales = matrix.absmax;
  const auto values = blockwise::dynamic_values(/*is_signed=*/true).to(scales.device());
  matrix.offset = scales.mean();
  matrix.codes = at::empty(scales.sizes(), scales.options().dtype(at::kByte));
  matrix.values = values;
  matrix.absmax =
      at::empty({(scales.numel() + blockwise::kBlock - 1) / blockwise::kBlock}, scales.options());
  blockwise::quantize(scales - matrix.offset, values, matrix.codes, matrix.absmax);
  return matrix;
}

int64_t quantize_4bit(PreTrainedModel& model, const QuantizationOptions& options) {
  const torch::NoGradGuard no_grad;
  int64_t count = 0;
  for (const auto& entry : model.named_module().named_modules("", /*include_self=*/false)) {
    auto* layer = dynamic_cast<layers::Linear*>(entry.value().get());
    if (layer == nullptr || !is_layer_of_block(entry.key()) ||
        layer->weight.numel() % kernels::kNf4Block != 0 ||
        kernels::Nf4Weight::is_one(layer->weight))
      continue;
    auto matrix = kernels::nf4_quantized(layer->weight.detach().to(options.device));
    if (options.nested) matrix = nf4_nested(std::move(matrix));
    const auto holder = std::make_shared<Nf4Holder>(std::move(matrix));
    layer->register_module("nf4", holder);
    layer->tie(holder->weight.stand_in());
    ++count;
  }
  if (count == 0)
    throw Error("G-PEFT-6", ErrorKind::model,
                "the model has no linear layer that 4 bits apply to: expected one in a block, with "
                "a multiple of 64 weights",
                "Leave --load_in_4bit out.");
  return count;
}

}  // namespace gradus
