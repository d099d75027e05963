#include <gradus/kernels/fused.h>
#include <gradus/models/layers/add_layer_norm.h>

namespace gradus::layers {

torch::Tensor add_layer_norm(const torch::Tensor& x, const torch::Tensor& residual,
                             const torch::nn::LayerNormImpl& norm) {
  return kernels::add_layer_norm(residual, x, norm.weight, norm.bias, norm.options.eps())
      .normalised;
}

}  // namespace gradus::layers
