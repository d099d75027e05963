#include <gradus/tasks/metrics.h>

#include <fmt/format.h>
#include <gradus/core/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tasks/metric_rows.h"

namespace gradus::metrics {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Count {
  int64_t right = 0, predicted = 0, real = 0;
};

double ratio(double part, double whole) { return whole == 0 ? 0.0 : part / whole; }

PrecisionRecallF1 scores_of(const Count& count) {
  return {ratio(double(count.right), double(count.predicted)),
          ratio(double(count.right), double(count.real)),
          ratio(2.0 * double(count.right), double(count.predicted + count.real))};
}

PrecisionRecallF1 averaged(const std::vector<Count>& counts, Average average) {
  if (average == Average::micro) {
    Count sum;
    for (const auto& each : counts)
      sum = {sum.right + each.right, sum.predicted + each.predicted, sum.real + each.real};
    return scores_of(sum);
  }
  PrecisionRecallF1 mean;
  double total = 0;
  for (const auto& each : counts) {
    const auto scores = scores_of(each);
    const double weight = average == Average::weighted ? double(each.real) : 1.0;
    mean = {mean.precision + weight * scores.precision, mean.recall + weight * scores.recall,
            mean.f1 + weight * scores.f1};
    total += weight;
  }
  return {ratio(mean.precision, total), ratio(mean.recall, total), ratio(mean.f1, total)};
}

std::map<int64_t, Count> count_classes(std::span<const int64_t> references,
                                       std::span<const int64_t> predictions) {
  std::map<int64_t, Count> counts;
  for (size_t i = 0; i < references.size(); ++i) {
    ++counts[references[i]].real;
    ++counts[predictions[i]].predicted;
    if (references[i] == predictions[i]) ++counts[references[i]].right;
  }
  return counts;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

// Ranks from 1; equal values share the mean of theirs.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    auto last = first + 1;
    while (last < order.size() && values[order[last]] == values[order[first]]) ++last;
    for (auto i = first; i < last; ++i) ranks[order[i]] = double(first + last + 1) / 2;
    first = last;
  }
  return ranks;
}

bool has_nan(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

}  // namespace

void check_rows(size_t references, size_t predictions) {
  if (references == predictions) return;
  throw Error("G-TASK-6", ErrorKind::usage,
              fmt::format("a metric received {} references and {} predictions: expected the same "
                          "number of both",
                          references, predictions),
              "Give one prediction for each reference.");
}

double accuracy(std::span<const int64_t> references, std::span<const int64_t> predictions) {
  check_rows(references.size(), predictions.size());
  if (references.empty()) return kUnknown;
  int64_t right = 0;
  for (size_t i = 0; i < references.size(); ++i) right += references[i] == predictions[i];
  return double(right) / double(references.size());
}

PrecisionRecallF1 precision_recall_f1(std::span<const int64_t> references,
                                      std::span<const int64_t> predictions, Average average) {
  check_rows(references.size(), predictions.size());
  const auto counts = count_classes(references, predictions);
  if (average == Average::binary) {
    const auto found = counts.find(1);
    if (counts.size() > 2 || (counts.size() == 2 && found == counts.end()))
      throw Error(
          "G-TASK-7", ErrorKind::usage,
          fmt::format("a binary score needs the classes 0 and 1, received {} classes up to {}",
                      counts.size(), counts.rbegin()->first),
          "Choose an average over classes: micro, macro or weighted.");
    return found == counts.end() ? PrecisionRecallF1{} : scores_of(found->second);
  }
  std::vector<Count> all;
  for (const auto& [label, count] : counts) all.push_back(count);
  return averaged(all, average);
}

PrecisionRecallF1 multilabel_precision_recall_f1(const torch::Tensor& references,
                                                 const torch::Tensor& predictions,
                                                 Average average) {
  if (references.dim() != 2 || references.sizes() != predictions.sizes())
    throw Error("G-TASK-6", ErrorKind::usage,
                fmt::format("a multi-label score received tensors of {} and {} values: expected "
                            "two of the same shape (rows, labels)",
                            references.numel(), predictions.numel()),
                "Give one prediction for each reference.");
  if (average == Average::binary)
    throw Error("G-TASK-7", ErrorKind::usage, "a multi-label score has no binary form",
                "Choose an average over labels: micro, macro or weighted.");
  const auto real = references.ne(0), predicted = predictions.ne(0);
  const auto sums = [](const torch::Tensor& set) {
    return set.to(torch::kLong).sum(0).cpu().contiguous();
  };
  const auto right = sums(real.logical_and(predicted)), found = sums(predicted),
             wanted = sums(real);
  std::vector<Count> counts;
  for (int64_t i = 0; i < right.numel(); ++i)
    counts.push_back({right.data_ptr<int64_t>()[i], found.data_ptr<int64_t>()[i],
                      wanted.data_ptr<int64_t>()[i]});
  return averaged(counts, average);
}

double matthews_correlation(std::span<const int64_t> references,
                            std::span<const int64_t> predictions) {
  check_rows(references.size(), predictions.size());
  if (references.empty()) return kUnknown;
  const double rows = double(references.size());
  double right = 0, mixed = 0, real = 0, predicted = 0;
  for (const auto& [label, count] : count_classes(references, predictions)) {
    right += double(count.right);
    mixed += double(count.real) * double(count.predicted);
    real += double(count.real) * double(count.real);
    predicted += double(count.predicted) * double(count.predicted);
  }
  const double spread = (rows * rows - predicted) * (rows * rows - real);
  return spread == 0 ? 0.0 : (right * rows - mixed) / std::sqrt(spread);
}

double mean_squared_error(std::span<const double> references, std::span<const double> predictions) {
  check_rows(references.size(), predictions.size());
  if (references.empty()) return kUnknown;
  double sum = 0;
  for (size_t i = 0; i < references.size(); ++i)
    sum += (references[i] - predictions[i]) * (references[i] - predictions[i]);
  return sum / double(references.size());
}

double pearson_correlation(std::span<const double> references,
                           std::span<const double> predictions) {
  check_rows(references.size(), predictions.size());
  if (references.size() < 2) return kUnknown;
  const double a = mean_of(references), b = mean_of(predictions);
  double both = 0, left = 0, right = 0;
  for (size_t i = 0; i < references.size(); ++i) {
    both += (references[i] - a) * (predictions[i] - b);
    left += (references[i] - a) * (references[i] - a);
    right += (predictions[i] - b) * (predictions[i] - b);
  }
  if (left == 0 || right == 0) return kUnknown;
  const double r = both / (std::sqrt(left) * std::sqrt(right));
  return std::isnan(r) ? r : std::clamp(r, -1.0, 1.0);
}

double spearman_correlation(std::span<const double> references,
                            std::span<const double> predictions) {
  check_rows(references.size(), predictions.size());
  if (has_nan(references) || has_nan(predictions)) return kUnknown;
  return pearson_correlation(ranks_of(references), ranks_of(predictions));
}

double perplexity(double loss) { return std::exp(loss); }

}  // namespace gradus::metrics
