#include "tasks/classification_scores.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/tasks/metrics.h>

namespace gradus::tasks {
namespace {

constexpr std::string_view kMetricNames[] = {
    "accuracy",    "f1",        "f1_micro", "f1_macro",
    "f1_weighted", "precision", "recall",   "matthews_correlation",
    "mse",         "pearsonr",  "spearmanr"};

std::vector<int64_t> integers(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kCPU, torch::kLong).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

std::vector<double> doubles(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kCPU, torch::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

metrics::Average average_in(const std::string& name, metrics::Average otherwise) {
  if (name.ends_with("_micro")) return metrics::Average::micro;
  if (name.ends_with("_macro")) return metrics::Average::macro;
  if (name.ends_with("_weighted")) return metrics::Average::weighted;
  return otherwise;
}

double part_of(const metrics::PrecisionRecallF1& scores, const std::string& name) {
  return name == "precision" ? scores.precision : name == "recall" ? scores.recall : scores.f1;
}

double value_score(const std::string& name, const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  const auto references = doubles(labels), values = doubles(predictions);
  if (name == "mse") return metrics::mean_squared_error(references, values);
  return name == "spearmanr" ? metrics::spearman_correlation(references, values)
                             : metrics::pearson_correlation(references, values);
}

double class_score(const std::string& name, const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  const auto references = integers(labels), values = integers(predictions);
  if (name == "accuracy") return metrics::accuracy(references, values);
  if (name == "matthews_correlation") return metrics::matthews_correlation(references, values);
  return part_of(
      metrics::precision_recall_f1(references, values, average_in(name, metrics::Average::binary)),
      name);
}

double multilabel_score(const std::string& name, const torch::Tensor& labels,
                        const torch::Tensor& predictions) {
  if (name == "accuracy")
    return labels.ne(0).eq(predictions.ne(0)).all(-1).to(torch::kDouble).mean().item<double>();
  return part_of(metrics::multilabel_precision_recall_f1(labels, predictions,
                                                         average_in(name, metrics::Average::micro)),
                 name);
}

bool is_value_metric(const std::string& name) {
  return name == "mse" || name == "pearsonr" || name == "pearson" || name == "spearmanr";
}

}  // namespace

std::span<const std::string_view> metric_names() { return kMetricNames; }

torch::Tensor decide(const torch::Tensor& scores, Problem problem) {
  if (problem == Problem::regression) return scores.reshape({scores.size(0), -1}).select(1, 0);
  return problem == Problem::multi_label ? scores.gt(0).to(torch::kLong) : scores.argmax(-1);
}

Metrics classification_scores(const EvalPrediction& prediction, Problem problem,
                              const std::vector<std::string>& names) {
  const auto predictions = decide(prediction.prediction_parts.front(), problem);
  const auto& labels = prediction.label_parts.front();
  Metrics scores;
  double sum = 0;
  for (const auto& name : names) {
    const auto score = problem == Problem::regression    ? value_score
                       : problem == Problem::multi_label ? multilabel_score
                                                         : class_score;
    sum += scores[name] = score(name, labels, predictions);
  }
  if (names.size() > 1) scores["combined_score"] = sum / double(names.size());
  return scores;
}

void check_metric(const std::string& name, Problem problem, size_t classes) {
  const auto refuse = [&](const std::string& reason, const std::string& advice) {
    throw Error("G-TASK-13", ErrorKind::data,
                fmt::format("the metric {} does not fit the labels: {}", name, reason), advice);
  };
  if (problem == Problem::regression && !is_value_metric(name))
    refuse("they are numbers, not classes", "Use mse, pearsonr or spearmanr.");
  if (problem != Problem::regression && is_value_metric(name))
    refuse("they are classes, not numbers",
           "Use accuracy, f1 or another metric of classes, or --do_regression.");
  if (problem == Problem::multi_label && name == "matthews_correlation")
    refuse("rows have several labels", "Use f1, precision, recall or accuracy.");
  if (problem == Problem::single_label && classes > 2 &&
      (name == "f1" || name == "precision" || name == "recall"))
    refuse(fmt::format("there are {} classes, and it is a score of two", classes),
           "Use f1_micro, f1_macro or f1_weighted.");
}

}  // namespace gradus::tasks
