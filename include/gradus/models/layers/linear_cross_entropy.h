#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace gradus::layers {

/// cross_entropy(hidden · weightᵀ + bias, labels) without holding all logits at once. The logits
/// are computed in chunks of rows, and the gradients in the same pass. Loss and gradients equal
/// those of the plain form. The loss can be used for one backward pass only.
///
/// `hidden` is (rows, width), `weight` (classes, width), `bias` (classes) or undefined, `labels`
/// (rows) with `ignore_index` where there is no label. The sum is divided by `num_items` when it is
/// set, otherwise by the number of labels. On the CPU a label outside the classes throws `Error`
/// G-MODEL-10.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& bias, const torch::Tensor& labels,
                                   const std::optional<torch::Tensor>& num_items,
                                   int64_t ignore_index = -100);

}  // namespace gradus::layers
