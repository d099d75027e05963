#pragma once

#include <torch/types.h>

#include <vector>

namespace gradus {

class Optimizer;

/// The norm of all gradients of `params` together; zero when there are none. No host-device sync.
torch::Tensor grad_norm(const std::vector<torch::Tensor>& params, double norm_type = 2.0);

/// Scales the gradients down to `max_norm` in place and returns their norm before, as
/// `torch.nn.utils.clip_grad_norm_`: multiplied by min(1, max_norm / (norm + 1e-6)), so a norm that
/// is not finite spoils all of them. No host-device sync.
torch::Tensor clip_grad_norm_(const std::vector<torch::Tensor>& params, double max_norm,
                              double norm_type = 2.0);

/// The tensors that carry the gradients of an optimizer's parameters, in order (the half-precision
/// weights where it trains masters).
std::vector<torch::Tensor> all_parameters(const Optimizer& optimizer);

}  // namespace gradus
