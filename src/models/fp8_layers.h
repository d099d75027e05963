#pragma once

#include <torch/nn/module.h>

#include <vector>

namespace gradus {

/// The weights that `--fp8` chooses: those of linear layers inside the model's blocks, that is of
/// modules with a number in their name, 128 or more wide and high in steps of 16, without an
/// adapter. Embeddings and heads are not among them. Throws `Error` G-GPU-2 where there are none.
std::vector<torch::Tensor> fp8_layer_weights(const torch::nn::Module& model);

}  // namespace gradus
