#pragma once

#include <gradus/models/layers/linear.h>
#include <gradus/models/model.h>
#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace gradus {

/// The losses of transformers' heads. All take logits of any float type, compute in float32, and
/// ignore labels of -100. `num_items` replaces the number of labels as divisor of the sum.

/// cross_entropy(logits (…, classes), labels (…)).
torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& labels,
                         const std::optional<torch::Tensor>& num_items = std::nullopt,
                         int64_t ignore_index = -100);

/// The labels that position t predicts: those of t + 1, -100 at the end of each row.
torch::Tensor shifted_labels(const torch::Tensor& labels);

/// Loss of a language model's head on `hidden` (batch, tokens, width): with `logits` (or undefined,
/// then the full logits are never made). `labels` have one entry per position and are not shifted
/// here.
torch::Tensor lm_head_loss(const layers::Linear& head, const torch::Tensor& hidden,
                           const torch::Tensor& logits, const torch::Tensor& labels,
                           const std::optional<torch::Tensor>& num_items);

/// `problem_type` of a config.json. Throws `Error` G-MODEL-5 for an unknown one, and for single
/// labels of one class.
std::optional<std::string> problem_type_in(const nlohmann::json& config);

/// "regression" for one class, else "single_label_classification" for integer labels and
/// "multi_label_classification" for others.
std::string problem_type_of(int64_t classes, const torch::Tensor& labels);

/// The loss of `problem_type` (regression, single_label_classification or
/// multi_label_classification), or of `problem_type_of` the labels.
torch::Tensor sequence_classification_loss(
    const torch::Tensor& logits, const torch::Tensor& labels,
    const std::optional<std::string>& problem_type,
    const std::optional<torch::Tensor>& num_items = std::nullopt);

/// Mean of the losses of start and end; positions outside the tokens are ignored.
torch::Tensor span_loss(const torch::Tensor& start_logits, const torch::Tensor& end_logits,
                        const torch::Tensor& start_positions, const torch::Tensor& end_positions,
                        const std::optional<torch::Tensor>& num_items = std::nullopt);

}  // namespace gradus
