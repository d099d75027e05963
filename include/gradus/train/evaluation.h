#pragma once

#include <gradus/train/trainer_state.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace gradus {

using Names = std::vector<std::string>;
using TensorList = std::vector<torch::Tensor>;

/// What `compute_metrics` sees. Rows of all batches are joined along the first dimension, shorter
/// ones padded with -100 in the second.
struct EvalPrediction {
  torch::Tensor predictions = {};    ///< the model's output; undefined when there are several
  torch::Tensor label_ids = {};      ///< the labels; undefined when there are several
  torch::Tensor inputs = {};         ///< with "inputs" in include_for_metrics
  torch::Tensor losses = {};         ///< with "loss" in include_for_metrics: one value per row
  TensorList prediction_parts = {};  ///< every output, also when there is just one
  TensorList label_parts = {};
  std::vector<TensorList> prediction_batches =
      {};  ///< with eval_do_concat_batches=false: the parts of each batch
  std::vector<TensorList> label_batches = {};
};

/// `(EvalPrediction) -> Metrics`, or, for `batch_eval_metrics`, `(EvalPrediction, bool
/// compute_result) -> Metrics`.
class ComputeMetrics {
 public:
  ComputeMetrics() = default;
  ComputeMetrics(std::nullptr_t) {}
  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, ComputeMetrics>)
  ComputeMetrics(F function) {
    if constexpr (std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>)
      batched_ = std::move(function);
    else
      whole_ = std::move(function);
  }
  explicit operator bool() const { return whole_ || batched_; }
  bool takes_compute_result() const { return bool(batched_); }
  Metrics operator()(const EvalPrediction& prediction) const {
    return whole_ ? whole_(prediction) : batched_(prediction, true);
  }
  Metrics operator()(const EvalPrediction& prediction, bool compute_result) const {
    return batched_(prediction, compute_result);
  }

 private:
  std::function<Metrics(const EvalPrediction&)> whole_;
  std::function<Metrics(const EvalPrediction&, bool)> batched_;
};

/// What `prediction_step` gives for one batch.
struct PredictionStep {
  std::optional<torch::Tensor> loss;
  TensorList logits;  ///< outputs other than the loss; empty with prediction_loss_only
  TensorList labels;
};

struct EvalLoopOutput {
  EvalPrediction prediction;
  Metrics metrics;
  int64_t num_samples = 0;
};

struct PredictionOutput {
  torch::Tensor predictions;
  torch::Tensor label_ids;
  TensorList prediction_parts;
  TensorList label_parts;
  Metrics metrics;
  std::vector<TensorList> prediction_batches = {};  ///< with eval_do_concat_batches=false, in place
                                                    ///< of the four above: the parts of each batch
  std::vector<TensorList> label_batches = {};
};

/// Joins two batches of rows: dimension 0 grows, dimension 1 is padded with `padding` to the longer
/// one; scalars become rows.
torch::Tensor pad_and_concatenate(const torch::Tensor& a, const torch::Tensor& b,
                                  int64_t padding = -100);

/// Collects per-batch tensors and joins them once at the end.
class EvalAccumulator {
 public:
  void add(TensorList parts);
  /// Moves what was collected to the CPU (`eval_accumulation_steps`).
  void to_cpu();
  bool empty() const { return batches_.empty(); }
  /// Each part over all batches, on the CPU. Throws `Error` G-TRAIN-17 when they have not equally
  /// many.
  TensorList join() const;
  std::vector<TensorList> batches() const;

 private:
  std::vector<TensorList> batches_;
};

}  // namespace gradus
