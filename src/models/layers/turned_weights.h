#pragma once

#include <torch/types.h>

#include <cstdint>
#include <unordered_map>

namespace gradus::layers {

/// While it lives, linear layers on this thread that few rows pass again and again multiply by
/// copies of their weights that lie the other way round, as (in, out).
///
/// A step of generation has so few rows that BLAS spends a good part of it on turning the weights;
/// here that happens once. Only float32 on the CPU without gradients is served, and only until the
/// copies have `kMostBytes`. The weights must not change while the scope lives.
/// Thread-safety: it speaks for its own thread only.
class [[nodiscard]] TurnedWeights {
 public:
  /// The copies of one scope together take no more than this.
  static constexpr int64_t kMostBytes = int64_t{512} << 20;

  TurnedWeights();
  ~TurnedWeights();
  TurnedWeights(const TurnedWeights&) = delete;
  TurnedWeights& operator=(const TurnedWeights&) = delete;

  /// The turned form of `weight` (out, in) for the input `x` of its layer; undefined where the
  /// weight itself serves as well. The first use of a weight makes no copy: it may be the only one.
  static torch::Tensor find(const torch::Tensor& weight, const torch::Tensor& x);

 private:
  torch::Tensor turned(const torch::Tensor& weight);

  TurnedWeights* before_;
  int64_t bytes_ = 0;
  std::unordered_map<const void*, torch::Tensor> copies_;  ///< undefined after the first use
};

}  // namespace gradus::layers
