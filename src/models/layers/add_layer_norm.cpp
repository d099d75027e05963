#include <gradus/models/layers/add_layer_norm.h>

#include <ATen/ops/layer_norm.h>

namespace gradus::layers {

torch::Tensor add_layer_norm(const torch::Tensor& x, const torch::Tensor& residual, const torch::nn::LayerNormImpl& norm) {
  return at::layer_norm(x + residual, norm.options.normalized_shape(), norm.weight, norm.bias, norm.options.eps());
}

}  // namespace gradus::layers
