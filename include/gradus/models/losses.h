#pragma once

#include <gradus/models/layers/linear.h>
#include <gradus/models/model.h>
#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace gradus {

// The losses of transformers' heads. All take logits of any float type, compute in float32 and
// ignore labels of -100. When `num_items` is given the sum is divided by it instead of by the
// number of labels. Labels on the CPU are checked: one outside the classes, or a shape that does
// not fit, throws `Error` G-MODEL-10.

/// Cross entropy of logits (…, classes) and labels (…).
torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& labels,
                         const std::optional<torch::Tensor>& num_items = std::nullopt,
                         int64_t ignore_index = -100);

/// The labels that position t has to predict: those of position t + 1, and -100 at the end of a
/// row.
torch::Tensor shifted_labels(const torch::Tensor& labels);

/// Cross entropy of a language model's head on `hidden` (batch, tokens, width). When `logits` is
/// undefined the loss is computed in chunks and the full logits never exist. `labels` has one entry
/// per position and is not shifted here. `bias` (1, vocabulary), where it is defined, is added to
/// the head's output; `logits` hold it already.
torch::Tensor lm_head_loss(const layers::Linear& head, const torch::Tensor& hidden,
                           const torch::Tensor& logits, const torch::Tensor& labels,
                           const std::optional<torch::Tensor>& num_items,
                           const torch::Tensor& bias = {});

/// `problem_type` of a config.json, if it has one. Throws `Error` G-MODEL-5 for an unknown value,
/// and for single_label_classification with one class.
std::optional<std::string> problem_type_in(const nlohmann::json& config);

/// The problem type that labels imply: "regression" for one class, otherwise
/// "single_label_classification" for integer labels and "multi_label_classification" for others.
std::string problem_type_of(int64_t classes, const torch::Tensor& labels);

/// The loss for `problem_type`; unset takes `problem_type_of` the labels. Regression uses the mean
/// squared error, single labels cross entropy, multiple labels binary cross entropy.
torch::Tensor sequence_classification_loss(
    const torch::Tensor& logits, const torch::Tensor& labels,
    const std::optional<std::string>& problem_type,
    const std::optional<torch::Tensor>& num_items = std::nullopt);

/// The mean of the cross entropies of start and end. Positions outside the tokens are ignored.
torch::Tensor span_loss(const torch::Tensor& start_logits, const torch::Tensor& end_logits,
                        const torch::Tensor& start_positions, const torch::Tensor& end_positions,
                        const std::optional<torch::Tensor>& num_items = std::nullopt);

}  // namespace gradus
