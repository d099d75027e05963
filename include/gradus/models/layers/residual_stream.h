#pragma once

#include <gradus/models/layers/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

namespace gradus::layers {

/// What flows past the blocks of a pre-norm model: every layer reads its norm and adds its output
/// to it.
///
/// The sum is formed when the next norm is asked for, so that both are one kernel on a GPU, also
/// across the border of two blocks. Same numbers as adding at once. Thread-safety: none; one stream
/// belongs to one forward pass.
class ResidualStream {
 public:
  explicit ResidualStream(torch::Tensor x) : total_(std::move(x)) {}

  /// norm(stream): what the next layer reads.
  torch::Tensor normed(const torch::nn::LayerNormImpl& norm);
  torch::Tensor normed(const RMSNorm& norm);
  /// projections[i](norm(stream)); on a GPU the norm is not kept for the backward pass. All or none
  /// of them have a bias.
  std::vector<torch::Tensor> projected(const RMSNorm& norm,
                                       const std::vector<std::shared_ptr<Linear>>& projections);
  /// stream += x
  void add(const torch::Tensor& x);
  /// The stream as it is now.
  torch::Tensor sum();

 private:
  torch::Tensor total_;
  torch::Tensor
      pending_;  ///< the last layer's output while nobody asked for the sum; undefined: none
};

}  // namespace gradus::layers
