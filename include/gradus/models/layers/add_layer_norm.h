#pragma once

#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

namespace gradus::layers {

/// norm(x + residual), which ends each half of a post-norm block as in BERT. The norm must
/// be over the last dimension.
///
/// See `kernels::add_layer_norm`: one kernel on a GPU, plain ATen operations elsewhere.
torch::Tensor add_layer_norm(const torch::Tensor& x, const torch::Tensor& residual,
                             const torch::nn::LayerNormImpl& norm);

}  // namespace gradus::layers
