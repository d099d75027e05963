#pragma once

#include <gradus/kernels/fused.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gradus::layers {

// The parameters of these modules have no values at first: a model is either loaded or initialised
// (`PreTrainedModel::init_weights`) afterwards. A model that is loaded never touches memory that it
// does not need.

/// What an adapter such as LoRA does to the output of a layer.
///
/// A layer that has one calls it at the end of `forward`. Code that reads a layer's weight instead
/// of calling `forward` must ask first whether there is one.
class LayerAdapter {
 public:
  virtual ~LayerAdapter() = default;
  /// The layer's output with the adapter: `x` is the layer's input (the ids of a table), `y` its
  /// own output.
  virtual torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) const = 0;
  /// What `forward` adds now, where it is a product of low rank and no more, so that it can be
  /// fused with the layer. `a` is undefined where nothing is added.
  virtual std::optional<kernels::LowRank> low_rank() const { return std::nullopt; }
  /// Whether `forward` draws random numbers now: one for each number of `x`.
  virtual bool draws() const { return false; }
};

/// y = x Wᵀ + b with `weight` (out, in).
class Linear : public torch::nn::Module {
 public:
  /// Parameters of these sizes, without values.
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);
  /// Applies the layer to the last dimension of `x`.
  torch::Tensor forward(const torch::Tensor& x) const;
  /// Uses `shared` as weight from now on, so that two modules share one tensor.
  void tie(const torch::Tensor& shared);
  /// Uses `shared` as bias from now on, also when there was none before.
  void tie_bias(const torch::Tensor& shared);

  torch::Tensor weight;                   ///< (out, in).
  torch::Tensor bias;                     ///< (out); undefined without a bias.
  std::shared_ptr<LayerAdapter> adapter;  ///< Null without one.
};

/// y = x W + b with `weight` (in, out), the layer of GPT-2.
class Conv1D : public torch::nn::Module {
 public:
  /// Parameters of these sizes, without values.
  Conv1D(int64_t in_features, int64_t out_features);
  /// Applies the layer to the last dimension of `x`.
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;                   ///< (in, out).
  torch::Tensor bias;                     ///< (out).
  std::shared_ptr<LayerAdapter> adapter;  ///< Null without one.
};

/// A table of vectors. Ids on the CPU are checked: one outside the table throws `Error` G-MODEL-9
/// with the id.
class Embedding : public torch::nn::Module {
 public:
  /// A table of `count` rows. Row `padding_index` gets no gradient and starts as zeros. `what`
  /// names the ids in error messages.
  Embedding(int64_t count, int64_t width, std::optional<int64_t> padding_index = std::nullopt,
            std::string what = "input_ids");
  /// The vectors of `ids` (…), of shape (…, width).
  torch::Tensor forward(const torch::Tensor& ids) const;
  /// The vectors of the ids 0 to `count` - 1, (count, width), without a look-up. Throws `Error`
  /// G-MODEL-9 on every device.
  torch::Tensor first(int64_t count) const;
  /// Uses `shared` as table from now on.
  void tie(const torch::Tensor& shared);

  torch::Tensor weight;                   ///< (count, width).
  std::optional<int64_t> padding_index;   ///< The row of the padding id, if there is one.
  std::shared_ptr<LayerAdapter> adapter;  ///< Null without one.

 private:
  std::string what_;
};

/// x · rsqrt(mean(x²) + eps) · weight, with the mean in float32.
class RMSNorm : public torch::nn::Module {
 public:
  /// A norm over a last dimension of `width`; the weight has no values yet.
  RMSNorm(int64_t width, double eps);
  /// Applies the norm to the last dimension of `x`.
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;  ///< (width).
  double eps;            ///< Added to the mean square.
};

/// Dropout with probability `p`. Returns `x` itself in evaluation and for `p == 0`.
torch::Tensor dropout(const torch::Tensor& x, double p, bool training);

}  // namespace gradus::layers
