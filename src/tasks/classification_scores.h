#pragma once

#include <gradus/train/evaluation.h>

#include "tasks/class_labels.h"

namespace gradus::tasks {

/// The names `--metric_name` takes.
std::span<const std::string_view> metric_names();

/// What of the output is the prediction: the value, the class with the highest score, or 1 where a
/// score is above 0.
torch::Tensor decide(const torch::Tensor& scores, Problem problem);

/// The metrics `names` of an evaluation; with several also `combined_score`, their mean.
Metrics classification_scores(const EvalPrediction& prediction, Problem problem,
                              const std::vector<std::string>& names);

/// Throws G-TASK-13 (data) when a metric cannot be computed for such labels.
void check_metric(const std::string& name, Problem problem, size_t classes);

}  // namespace gradus::tasks
