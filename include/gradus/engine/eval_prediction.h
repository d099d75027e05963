#pragma once

#include <gradus/core/metrics.h>
#include <gradus/data/batch.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace gradus {

/// Names of columns, outputs or options.
using Names = std::vector<std::string>;
/// Tensors that belong together, for example all outputs for one batch.
using TensorList = std::vector<torch::Tensor>;

/// What `compute_metrics` sees.
///
/// By default the rows of all batches are joined along the first dimension, and shorter rows are
/// padded with -100 in the second. With `eval_do_concat_batches=false` nothing is joined: the
/// members named `*_batches` hold one entry per batch, and the others stay empty. With
/// `batch_eval_metrics` it holds a single batch, on the model's device.
struct EvalPrediction {
  torch::Tensor predictions = {};    ///< the model's output; undefined when there are several
  torch::Tensor label_ids = {};      ///< the labels; undefined when there are several
  torch::Tensor inputs = {};         ///< main input, with "inputs" in include_for_metrics
  torch::Tensor losses = {};         ///< one per row, with "loss" in include_for_metrics
  TensorList prediction_parts = {};  ///< every output, also when there is just one
  TensorList label_parts = {};       ///< every label, also when there is just one
  std::vector<TensorList> prediction_batches = {};  ///< not joined: `prediction_parts` per batch
  std::vector<TensorList> label_batches = {};       ///< not joined: `label_parts` per batch
  TensorList input_batches = {};                    ///< not joined: `inputs` of each batch
  TensorList loss_batches = {};                     ///< not joined: `losses` of each batch
  /// With `batch_eval_metrics` and "inputs" in include_for_metrics: all columns of the batch.
  Batch input_columns = {};
};

/// A user's metrics: `(EvalPrediction) -> Metrics`, or, for `batch_eval_metrics`,
/// `(EvalPrediction, bool compute_result) -> Metrics`.
///
/// The second form is called once per batch. It returns the metrics of the whole evaluation when
/// `compute_result` is true, which it is for the last batch.
class ComputeMetrics {
 public:
  ComputeMetrics() = default;        ///< None.
  ComputeMetrics(std::nullptr_t) {}  ///< None.
  /// Any function of one of the two forms.
  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, ComputeMetrics>)
  ComputeMetrics(F function) {
    if constexpr (std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>)
      batched_ = std::move(function);
    else
      whole_ = std::move(function);
  }
  /// Whether there is a function.
  explicit operator bool() const { return whole_ || batched_; }
  /// Whether it is the form for `batch_eval_metrics`.
  bool takes_compute_result() const { return bool(batched_); }
  /// The metrics of a whole evaluation.
  Metrics operator()(const EvalPrediction& prediction) const {
    return whole_ ? whole_(prediction) : batched_(prediction, true);
  }
  /// Adds a batch. Only where `takes_compute_result()`.
  Metrics operator()(const EvalPrediction& prediction, bool compute_result) const {
    return batched_(prediction, compute_result);
  }

 private:
  std::function<Metrics(const EvalPrediction&)> whole_;
  std::function<Metrics(const EvalPrediction&, bool)> batched_;
};

/// `(logits, labels) -> logits`, applied to each batch before it is kept.
using PreprocessLogits =
    std::function<TensorList(const TensorList& logits, const TensorList& labels)>;

/// What `prediction_step` gives for one batch.
struct PredictionStep {
  std::optional<torch::Tensor> loss;  ///< absent when the batch has no labels
  TensorList logits;  ///< outputs other than the loss; empty with prediction_loss_only
  TensorList labels;  ///< empty with prediction_loss_only
};

/// What an evaluation gives.
struct EvalLoopOutput {
  EvalPrediction prediction;  ///< predictions and labels
  Metrics metrics;            ///< every name begins with the evaluation's prefix
  int64_t num_samples = 0;    ///< rows evaluated
};

}  // namespace gradus
