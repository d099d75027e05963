#pragma once

#include <gradus/models/layers/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

namespace gradus::layers {

/// The residual stream of a pre-norm model: every layer reads its norm and adds its output to it.
///
/// The addition happens when the next norm is computed, so that both are one kernel on a GPU, also
/// from one block to the next. The numbers equal those of adding at once. Thread-safety: none; one
/// stream belongs to one forward pass.
class ResidualStream {
 public:
  /// Starts the stream with the embeddings.
  explicit ResidualStream(torch::Tensor x) : total_(std::move(x)) {}

  /// norm(stream), the next layer's input.
  torch::Tensor normed(const torch::nn::LayerNormImpl& norm);
  /// The same with an RMSNorm.
  torch::Tensor normed(const RMSNorm& norm);
  /// projections[i](norm(stream)). On a GPU the norm is not kept for the backward pass. Either all
  /// projections have a bias or none has.
  std::vector<torch::Tensor> projected(const RMSNorm& norm,
                                       const std::vector<std::shared_ptr<Linear>>& projections);
  /// Adds a layer's output to the stream.
  void add(const torch::Tensor& x);
  /// The current value of the stream.
  torch::Tensor sum();

 private:
  torch::Tensor total_;
  torch::Tensor pending_;  ///< An output not yet added; undefined when there is none.
};

}  // namespace gradus::layers
