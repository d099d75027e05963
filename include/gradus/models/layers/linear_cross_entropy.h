#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace gradus::layers {

/// cross_entropy(hidden · weightᵀ + bias, labels) without ever holding all logits: they are
/// made, used and dropped in chunks of rows, and the gradients are formed on the way. Same loss and
/// gradients as the plain form.
///
/// `hidden` (rows, width), `weight` (classes, width), `bias` (classes) or undefined, `labels`
/// (rows) with `ignore_index` where there is none. The sum is divided by `num_items` when given,
/// otherwise by the number of labels. The loss can be used for one backward pass. Throws `Error`
/// G-MODEL-10 for a label outside the classes (on the CPU).
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& bias, const torch::Tensor& labels,
                                   const std::optional<torch::Tensor>& num_items,
                                   int64_t ignore_index = -100);

}  // namespace gradus::layers
