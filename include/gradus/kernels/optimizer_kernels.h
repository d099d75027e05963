#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

// Operations over all parameters at once: one or two launches on a GPU, whatever the number of
// tensors.
//
// On other devices, or without the CUDA plugin, ATen operations do the same. None waits for the
// device. All can be captured in a CUDA graph, which then holds the tensors' addresses. Lists may
// be empty. Thread-safety: as ATen's in-place operations.
namespace gradus::kernels {

/// The constants of AdamW.
struct AdamWSettings {
  double beta1 = 0.9;         ///< Decay of the first moment.
  double beta2 = 0.999;       ///< Decay of the second moment.
  double eps = 1e-8;          ///< Added to the denominator.
  double weight_decay = 0.0;  ///< Decoupled weight decay, multiplied by the learning rate.
  bool maximize = false;      ///< Steps along the gradient instead of against it.
};

/// Values that live on the device: float32 tensors with one element.
struct AdamWScalars {
  torch::Tensor lr;                                        ///< Learning rate.
  torch::Tensor step;                                      ///< Steps taken, this one included.
  std::optional<torch::Tensor> clip_coef = std::nullopt;   ///< Gradients are multiplied by it.
  std::optional<torch::Tensor> grad_scale = std::nullopt;  ///< Gradients are divided by it.
  std::optional<torch::Tensor> found_inf = std::nullopt;   ///< Unless 0, nothing is changed.
};

/// The tensors of one parameter group; equal indices belong together. All are on one device and
/// contiguous, or all have the same dense strides.
struct AdamWTensors {
  std::vector<torch::Tensor> masters;  ///< The parameters in float32; updated.
  /// The bfloat16 or float16 copies that the model computes with; empty when there are none.
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> grads;       ///< bfloat16, float16 or float32, also mixed; only read.
  std::vector<torch::Tensor> exp_avg;     ///< First moment in float32; updated.
  std::vector<torch::Tensor> exp_avg_sq;  ///< Second moment in float32; updated.
};

/// One step of AdamW with decoupled weight decay, rounded as ATen's fused AdamW in float32. Then
/// the rounded `masters` are copied to `weights`.
void adamw_(const AdamWTensors& tensors, const AdamWScalars& scalars,
            const AdamWSettings& settings);

/// The L2 norm over all elements of all tensors (float32, bfloat16, float16, also mixed) as a
/// float32 tensor without dimensions on their device. The order of summation is fixed, so equal
/// tensors give equal bits. An empty list gives 0 on the CPU.
torch::Tensor grad_norm(const std::vector<torch::Tensor>& grads);

/// min(1, max_norm / (norm + 1e-6)), as torch's `clip_grad_norm_` computes it; NaN stays NaN.
torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm);

/// Multiplies every tensor by `factor`, a float32 tensor without dimensions on their device.
void scale_(const std::vector<torch::Tensor>& tensors, const torch::Tensor& factor);

/// Copies sources[i] to destinations[i], with a cast where the dtypes differ.
void copy_(const std::vector<torch::Tensor>& destinations,
           const std::vector<torch::Tensor>& sources);

}  // namespace gradus::kernels
