#pragma once

#include <torch/types.h>

#include <vector>

// Products of linear layers in 8-bit floating point.
//
// A layer that is chosen here rounds its input and its weight to e4m3 (4 bits of exponent, 3 of
// mantissa) in the forward pass, and the gradient of its output to e5m2 in the backward pass. Each
// tensor has one factor, found from its largest magnitude on the device in the same step: nothing
// is kept from step to step, and nothing waits. Sums are formed in float32, results are bfloat16.
namespace gradus::kernels {

/// The weights of layers that may multiply in 8 bits, from construction to destruction.
///
/// They do so while a `Use` lives: where `linear`, `linear_in_out`, `add_rms_norm_linear` or
/// `swiglu_linear` is called with one of them in bfloat16, without an adapter, with numbers of
/// rows, inputs and outputs that are multiples of 16. Everything else runs as it does otherwise. On
/// a GPU the products need compute capability 8.9 and the CUDA plugin. Elsewhere they are formed
/// from the same rounded values in float32, which is slow and meant for tests.
/// Thread-safety: all members may be called from any thread; the choice holds for all threads, so
/// that a recomputation in the backward pass does as the forward pass did.
class Fp8Weights {
 public:
  /// Chooses `weights`; holds on to them. Their values and types may change later.
  explicit Fp8Weights(std::vector<torch::Tensor> weights);
  ~Fp8Weights();
  Fp8Weights(const Fp8Weights&) = delete;
  Fp8Weights& operator=(const Fp8Weights&) = delete;

  /// While one lives, chosen layers multiply in 8 bits. One around each training step leaves
  /// evaluations in bfloat16.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

 private:
  std::vector<torch::Tensor> weights_;
};

}  // namespace gradus::kernels
