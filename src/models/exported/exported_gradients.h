#pragma once

#include <torch/types.h>

#include <vector>

namespace gradus {

/// The loss as a result of the parameters: its backward pass gives `gradients`, times the gradient
/// of the loss itself. Undefined gradients stay undefined.
///
/// The gradients are handed over, so that each parameter takes its own without a copy; the backward
/// pass can run once. Throws `Error` G-EXPORT-6 when it runs again.
torch::Tensor loss_with_gradients(torch::Tensor loss, const std::vector<torch::Tensor>& parameters,
                                  std::vector<torch::Tensor> gradients);

}  // namespace gradus
