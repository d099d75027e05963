#pragma once

#include <gradus/config/gradient_checkpointing.h>
#include <torch/types.h>

#include <functional>
#include <vector>

namespace gradus::layers {

/// Calls `block(x)` without keeping its inner activations, and computes them again in the backward
/// pass. The second run has the same random numbers (CPU and GPU) and the same autocast state, so
/// values and gradients equal those of a plain call. `how.every_n_layers` is left to the caller.
///
/// Parameters that `block` uses get their gradients as usual; other captured tensors get none. The
/// block runs again during backward, so everything it refers to must live until then. Without
/// gradient mode this is a plain call.
torch::Tensor checkpoint(const std::function<torch::Tensor(const torch::Tensor&)>& block,
                         const torch::Tensor& x, const GradientCheckpointing& how = {});

/// The same for a block with several inputs. Each input that requires a gradient gets it. All must
/// be defined and on one device.
torch::Tensor checkpoint(
    const std::function<torch::Tensor(const std::vector<torch::Tensor>&)>& block,
    const std::vector<torch::Tensor>& inputs, const GradientCheckpointing& how = {});

}  // namespace gradus::layers
