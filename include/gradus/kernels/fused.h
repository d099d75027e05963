#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

/// Operations of a model's forward pass that are one kernel on a GPU, with their backward.
///
/// On the CPU, under autocast, for other dtypes or layouts, and without the CUDA plugin they are
/// made of plain ATen operations and give bit for bit what those give. The kernels take bfloat16,
/// float16 and float32, compute in float32, are deterministic, never wait for the device and can be
/// captured in a CUDA graph. All are differentiable; a second derivative goes through the plain
/// form. Thread-safety: like ATen's operations.
namespace gradus::kernels {

struct AddNorm {
  torch::Tensor sum;         ///< residual + x: the residual stream from here on
  torch::Tensor normalised;  ///< what the next layer reads
};

/// sum = residual + x and LayerNorm(sum) over the last dimension with `weight` and `bias` (width).
/// Kernel: widths that are a multiple of 8 up to 8192, all tensors of one dtype and contiguous.
AddNorm add_layer_norm(const torch::Tensor& residual, const torch::Tensor& x,
                       const torch::Tensor& weight, const torch::Tensor& bias, double eps);
/// The same without the sum.
torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias, double eps);

/// sum = residual + x and sum · rsqrt(mean(sum²) + eps) · weight, rounded to the dtype before the
/// weight as transformers does.
AddNorm add_rms_norm(const torch::Tensor& residual, const torch::Tensor& x,
                     const torch::Tensor& weight, double eps);
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

struct NormedProjections {
  torch::Tensor sum;                   ///< residual + x, or x
  std::vector<torch::Tensor> outputs;  ///< one per weight
};

/// outputs[i] = linear(rms_norm(residual + x), weights[i], biases[i]); `residual` may be undefined,
/// `biases` empty. On a GPU what was normalised is formed anew in the backward pass instead of
/// being kept, and its gradient is summed inside the products. No second derivative there.
NormedProjections add_rms_norm_linear(const torch::Tensor& residual, const torch::Tensor& x,
                                      const torch::Tensor& norm_weight, double eps,
                                      const std::vector<torch::Tensor>& weights,
                                      const std::vector<torch::Tensor>& biases);

/// x · weightᵀ + bias for `weight` (out, in). On a GPU the bias' gradient is summed by a kernel of
/// its own.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);
/// x · weight + bias for `weight` (in, out), the form of GPT-2's layers.
torch::Tensor linear_in_out(const torch::Tensor& x, const torch::Tensor& weight,
                            const torch::Tensor& bias);

struct Heads {
  torch::Tensor query, key, value;  ///< (batch, tokens, heads, width each)
};

/// Views of a packed projection (batch, tokens, 3 · heads · width). Their gradients are packed by
/// one kernel on a GPU.
Heads split_heads(const torch::Tensor& packed, int64_t heads);

/// silu(gate) · up; keeps only `gate` and `up` for the backward pass.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);
/// linear(swiglu(gate, up), weight, bias) that on a GPU forms the product anew in the backward pass
/// instead of keeping it: a third less memory for the MLP of a Llama. `weight` (out, in), `bias`
/// (out) or undefined.
torch::Tensor swiglu_linear(const torch::Tensor& gate, const torch::Tensor& up,
                            const torch::Tensor& weight, const torch::Tensor& bias);

struct Rotated {
  torch::Tensor query, key;
};

/// Rotates pairs (i, i + r/2) of the first r channels by their angles; channels beyond r stay as
/// they are.
///
/// `query`, `key` (batch, tokens, heads, width), any strides with contiguous channels; `cos`, `sin`
/// (batch or 1, tokens, 1, r/2). On a GPU give the angles in float32: they are not rounded to the
/// dtype of the query. New tensors, contiguous.
Rotated rotary(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& cos,
               const torch::Tensor& sin);

/// Whether `linear_cross_entropy` has a kernel for these: CUDA, bfloat16 hidden and weight, no
/// autocast.
bool linear_cross_entropy_applies(const torch::Tensor& hidden, const torch::Tensor& weight,
                                  const torch::Tensor& bias);

/// scale · Σ cross_entropy(hidden · weightᵀ + bias, labels), float32, without ever holding all
/// logits.
///
/// Rows go through in chunks: bfloat16 logits, overwritten by their gradient, from which the
/// gradients of hidden, weight and bias are formed on the way. `hidden` (rows, width), `weight`
/// (classes, width; padded inside to a multiple of 64), `bias` (classes) or undefined, `labels`
/// (rows, int64) with `ignore_index` where there is none, `scale` a float32 tensor of no dimension
/// on the device (one over the number of items). A label outside the classes makes the loss NaN.
/// The loss can be used for one backward pass.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& bias, const torch::Tensor& labels,
                                   const torch::Tensor& scale, int64_t ignore_index = -100);

}  // namespace gradus::kernels
