#pragma once

#include <torch/types.h>

#include <vector>

namespace gradus {

/// The loss of an evaluation, from those of its batches.
class MeanLoss {
 public:
  /// `weight`: how many rows or tokens the loss stands for.
  void add(const torch::Tensor& loss, int64_t weight);
  bool empty() const { return batches_.empty(); }

  /// The mean over the rows, equal to the last bit to what numpy computes for transformers: in the
  /// type of the losses, and in numpy's order.
  double over_rows() const;
  /// The mean over the tokens, in float64. transformers has no such mean.
  double over_tokens() const;

 private:
  struct Share {
    double loss;
    int64_t weight;
  };
  std::vector<Share> batches_;
  torch::ScalarType type_ = torch::kFloat;
};

}  // namespace gradus
