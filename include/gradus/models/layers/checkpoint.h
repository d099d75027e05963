#pragma once

#include <gradus/config/gradient_checkpointing.h>
#include <torch/types.h>

#include <functional>
#include <vector>

namespace gradus::layers {

/// `block(x)` whose inner activations are not kept but computed again in the backward pass, with
/// the same random numbers (CPU and GPU) and the same autocast state, so that values and gradients
/// are those of a plain call. `how.every_n_layers` is the caller's affair.
///
/// `block` may use parameters and tensors of its own; gradients of parameters accumulate as usual,
/// other captured tensors get none. It runs again during backward: whatever it refers to must live
/// until then. Outside of gradient mode it is a plain call.
torch::Tensor checkpoint(const std::function<torch::Tensor(const torch::Tensor&)>& block,
                         const torch::Tensor& x, const GradientCheckpointing& how = {});

/// The same for a block of several tensors; each that requires one gets its gradient. All must be
/// defined and on one device.
torch::Tensor checkpoint(
    const std::function<torch::Tensor(const std::vector<torch::Tensor>&)>& block,
    const std::vector<torch::Tensor>& inputs, const GradientCheckpointing& how = {});

}  // namespace gradus::layers
