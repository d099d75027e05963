#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gradus::layers {

/// The modules here leave their parameters without values: whoever makes a model either loads or
/// initialises it
/// (`PreTrainedModel::init_weights`), and a model that is loaded never touches memory it does not
/// need.

/// y = x Wᵀ + b with `weight` (out, in).
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);
  torch::Tensor forward(const torch::Tensor& x) const;
  /// Uses `shared` as weight from now on, so that both modules hold one tensor.
  void tie(const torch::Tensor& shared);
  /// The same for the bias, which need not have been there before.
  void tie_bias(const torch::Tensor& shared);

  torch::Tensor weight;
  torch::Tensor bias;  ///< undefined without one
};

/// y = x W + b with `weight` (in, out): the layer of GPT-2.
class Conv1D : public torch::nn::Module {
 public:
  Conv1D(int64_t in_features, int64_t out_features);
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;
  torch::Tensor bias;
};

/// A table of vectors. Ids on the CPU are checked: one outside the table throws `Error` G-MODEL-9
/// with the id.
class Embedding : public torch::nn::Module {
 public:
  /// Row `padding_index` gets no gradient and starts as zeros.
  Embedding(int64_t count, int64_t width, std::optional<int64_t> padding_index = std::nullopt,
            std::string what = "input_ids");
  torch::Tensor forward(const torch::Tensor& ids) const;
  /// The vectors of the ids 0 to `count` - 1, (count, width), without a look-up; checked on every
  /// device.
  torch::Tensor first(int64_t count) const;
  void tie(const torch::Tensor& shared);

  torch::Tensor weight;
  std::optional<int64_t> padding_index;

 private:
  std::string what_;  ///< name of the ids in error texts
};

/// x · rsqrt(mean(x²) + eps) · weight, the mean in float32.
class RMSNorm : public torch::nn::Module {
 public:
  RMSNorm(int64_t width, double eps);
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;
  double eps;
};

/// Dropout that is not there in evaluation or with `p == 0`.
torch::Tensor dropout(const torch::Tensor& x, double p, bool training);

}  // namespace gradus::layers
