#pragma once

#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

namespace gradus::layers {

/// norm(x + residual): the end of each half of a post-norm block (BERT).
torch::Tensor add_layer_norm(const torch::Tensor& x, const torch::Tensor& residual,
                             const torch::nn::LayerNormImpl& norm);

}  // namespace gradus::layers
