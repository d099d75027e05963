#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

/// Operations over all parameters at once: one or two launches on a GPU, however many tensors there
/// are.
///
/// On other devices, or without the CUDA plugin, ATen operations do the same. None waits for the
/// device; all can be captured in a CUDA graph (the tensors' addresses are then part of it). Lists
/// may be empty. Thread-safety: like ATen's in-place operations.
namespace gradus::kernels {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool maximize = false;
};

/// Numbers that live on the device: float32 tensors of no dimension (or one element).
struct AdamWScalars {
  torch::Tensor lr;
  torch::Tensor step;                                      ///< steps taken, this one included
  std::optional<torch::Tensor> clip_coef = std::nullopt;   ///< gradients are multiplied by it
  std::optional<torch::Tensor> grad_scale = std::nullopt;  ///< gradients are divided by it
  std::optional<torch::Tensor> found_inf = std::nullopt;   ///< not 0: nothing is changed
};

/// The tensors of one parameter group, index by index. All contiguous (or all with the same dense
/// strides) and on one device.
struct AdamWTensors {
  std::vector<torch::Tensor> masters;  ///< float32: the parameters
  std::vector<torch::Tensor>
      weights;  ///< bfloat16 or float16 copies that the model computes with; empty: there are none
  std::vector<torch::Tensor> grads;       ///< bfloat16, float16 or float32, also mixed; read only
  std::vector<torch::Tensor> exp_avg;     ///< float32
  std::vector<torch::Tensor> exp_avg_sq;  ///< float32
};

/// One step of AdamW with decoupled weight decay, rounded as ATen's fused AdamW in float32; then
/// `weights` are the rounded `masters`.
void adamw_(const AdamWTensors& tensors, const AdamWScalars& scalars,
            const AdamWSettings& settings);

/// The L2 norm of all elements of all tensors (float32, bfloat16, float16, also mixed) as a float32
/// tensor of no dimension on their device. Summed in a fixed order: the same tensors give the same
/// bits. An empty list gives 0 on the CPU.
torch::Tensor grad_norm(const std::vector<torch::Tensor>& grads);

/// min(1, max_norm / (norm + 1e-6)), as clip_grad_norm_ forms it; NaN stays NaN.
torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm);

/// Multiplies every tensor by `factor`, a float32 tensor of no dimension on their device.
void scale_(const std::vector<torch::Tensor>& tensors, const torch::Tensor& factor);

/// destinations[i] = sources[i], with a cast where the dtypes differ.
void copy_(const std::vector<torch::Tensor>& destinations,
           const std::vector<torch::Tensor>& sources);

}  // namespace gradus::kernels
