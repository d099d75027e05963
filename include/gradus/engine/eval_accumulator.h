#pragma once

#include <gradus/engine/eval_prediction.h>

#include <vector>

namespace gradus {

/// Joins two batches of rows: dimension 0 grows, dimension 1 is padded with `padding` to the longer
/// of the two. Scalars become rows.
torch::Tensor pad_and_concatenate(const torch::Tensor& a, const torch::Tensor& b,
                                  int64_t padding = -100);

/// Collects the tensors of each batch and joins them once at the end.
///
/// What comes out is on the CPU, and bfloat16 becomes float32, as in numpy arrays.
/// Thread-safety: none.
class EvalAccumulator {
 public:
  /// Adds the tensors of a batch; they stay on their device for now.
  void add(TensorList parts);
  /// Moves what was collected so far to the CPU (`eval_accumulation_steps`).
  void to_cpu();
  /// Whether nothing was added.
  bool empty() const { return batches_.empty(); }
  /// Each part over all batches. Throws `Error` G-TRAIN-17 when a batch has more or fewer parts
  /// than the first.
  TensorList join() const;
  /// The parts of each batch.
  std::vector<TensorList> batches() const;

 private:
  std::vector<TensorList> batches_;
};

}  // namespace gradus
