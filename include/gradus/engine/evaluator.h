#pragma once

#include <gradus/data/data_loader.h>
#include <gradus/engine/eval_prediction.h>
#include <gradus/engine/strategy.h>

#include <functional>
#include <optional>
#include <string>

namespace gradus {

/// How an `Evaluator` works. The members named as options of TrainingArguments mean the same.
struct EvaluatorOptions {
  ComputeMetrics compute_metrics = nullptr;  ///< the user's metrics, if any
  /// Changes the predictions of each batch before they are kept.
  PreprocessLogits preprocess_logits = nullptr;
  Names include_for_metrics = {};  ///< "inputs" and "loss" beside predictions and labels
  /// Call `compute_metrics`, which then must take `compute_result`, after every batch.
  bool batch_eval_metrics = false;
  bool eval_do_concat_batches = true;                   ///< join the outputs of all batches
  std::optional<int64_t> eval_accumulation_steps = {};  ///< batches between moves to the CPU
  /// Whether the output holds predictions, labels and inputs. Without, a `compute_metrics` for
  /// whole evaluations is not called.
  bool keep_predictions = true;
  std::string main_input_name = "input_ids";  ///< the column that "inputs" stands for
  std::string metric_key_prefix = "eval";     ///< metrics are named `<prefix>_<name>`
  /// For how many rows the loss of a batch counts. Default: the rows of the batch.
  std::function<int64_t(const Batch&)> rows_of_loss = {};
  /// For how many tokens it counts; when set, the mean loss is one over tokens.
  std::function<int64_t(const Batch&)> tokens_of_loss = {};
  /// For how many rows the loss of a full batch counts when several processes share the rows.
  /// Default: what `rows_of_loss` says of each batch.
  std::optional<int64_t> batch_size = {};
  /// Called after each batch.
  std::function<void()> after_batch = {};
  /// What the processes of a run do together; null: a single process evaluates. Every process
  /// evaluates its share of the rows and gets the results of all. It must outlive the evaluator.
  Strategy* strategy = nullptr;
};

/// Runs a model over a loader and turns what it predicts into metrics.
///
/// It knows neither trainer nor model: a function predicts one batch, and the options say what is
/// done with the result. The evaluator does not log, and it does not choose a best model.
/// Thread-safety: none.
class Evaluator {
 public:
  /// Predicts a batch: loss, outputs and labels.
  using PredictionFunction = std::function<PredictionStep(const Batch&)>;

  /// Takes the options; they are not checked.
  explicit Evaluator(EvaluatorOptions options);

  /// One pass over `loader`. The loss in the metrics is `<prefix>_loss`: the mean over the rows,
  /// added up in float32 in numpy's order, so that it equals transformers' to the last bit.
  /// Throws what `prediction_step`, the loader or `compute_metrics` throw, and `Error` G-TRAIN-17
  /// when batches give different numbers of outputs.
  EvalLoopOutput run(const DataLoader& loader, const PredictionFunction& prediction_step) const;

 private:
  struct Outputs;
  struct Collected;
  Outputs outputs_of(const Batch& batch, PredictionStep step) const;
  void gather(Outputs& outputs, std::optional<int64_t> step_rows, int64_t full_step) const;
  void cut_weights(Outputs& outputs, int64_t step_rows, int64_t full_step) const;
  bool is_shared() const;
  bool includes(const char* what) const;

  EvaluatorOptions options_;
};

}  // namespace gradus
