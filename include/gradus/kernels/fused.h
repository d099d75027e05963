#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

// Operations of a model's forward pass that run as one kernel on a GPU, forward and backward.
//
// On the CPU, under autocast, for other dtypes or layouts, and without the CUDA plugin they consist
// of plain ATen operations and give the same bits as those. The kernels take bfloat16, float16 and
// float32 and compute in float32. They are deterministic, never wait for the device and can be
// captured in a CUDA graph. All are differentiable; a second derivative uses the plain form.
// Thread-safety: as ATen's operations.
namespace gradus::kernels {

/// The two results of a fused addition and norm.
struct AddNorm {
  torch::Tensor sum;         ///< residual + x, the new residual stream.
  torch::Tensor normalised;  ///< The norm of `sum`, the next layer's input.
};

/// sum = residual + x, normalised = LayerNorm(sum) over the last dimension with `weight` and `bias`
/// of that width. The kernel takes widths that are a multiple of 8, up to 8192, and contiguous
/// tensors of one dtype.
AddNorm add_layer_norm(const torch::Tensor& residual, const torch::Tensor& x,
                       const torch::Tensor& weight, const torch::Tensor& bias, double eps);
/// LayerNorm(x), without an addition.
torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias, double eps);

/// sum = residual + x, normalised = sum · rsqrt(mean(sum²) + eps) · weight. As in transformers,
/// the value is rounded to the dtype before it is multiplied by the weight.
AddNorm add_rms_norm(const torch::Tensor& residual, const torch::Tensor& x,
                     const torch::Tensor& weight, double eps);
/// RMSNorm(x), without an addition.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

/// The results of `add_rms_norm_linear`.
struct NormedProjections {
  torch::Tensor sum;                   ///< residual + x, or x without a residual.
  std::vector<torch::Tensor> outputs;  ///< One per weight.
};

/// outputs[i] = linear(rms_norm(residual + x), weights[i], biases[i]). `residual` may be undefined,
/// `biases` may be empty. On a GPU the norm is recomputed in the backward pass instead of being
/// kept, its gradient is accumulated inside the matrix products, and there is no second derivative.
NormedProjections add_rms_norm_linear(const torch::Tensor& residual, const torch::Tensor& x,
                                      const torch::Tensor& norm_weight, double eps,
                                      const std::vector<torch::Tensor>& weights,
                                      const std::vector<torch::Tensor>& biases);

/// x · weightᵀ + bias with `weight` (out, in). On a GPU a kernel of its own sums the gradient of
/// the bias.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);
/// x · weight + bias with `weight` (in, out), the form of GPT-2's layers.
torch::Tensor linear_in_out(const torch::Tensor& x, const torch::Tensor& weight,
                            const torch::Tensor& bias);

/// Query, key and value of an attention layer.
struct Heads {
  torch::Tensor query;  ///< (batch, tokens, heads, width of a head).
  torch::Tensor key;    ///< The same shape.
  torch::Tensor value;  ///< The same shape.
};

/// Splits a packed projection (batch, tokens, 3 · heads · width) into views. On a GPU one kernel
/// packs their gradients.
Heads split_heads(const torch::Tensor& packed, int64_t heads);

/// silu(gate) · up; keeps only `gate` and `up` for the backward pass.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);
/// linear(swiglu(gate, up), weight, bias) with `weight` (out, in) and `bias` (out) or undefined. On
/// a GPU the inner product is recomputed in the backward pass instead of being kept, which saves a
/// third of the memory of a Llama's MLP.
torch::Tensor swiglu_linear(const torch::Tensor& gate, const torch::Tensor& up,
                            const torch::Tensor& weight, const torch::Tensor& bias);

/// Query and key after a rotary embedding.
struct Rotated {
  torch::Tensor query;  ///< The rotated query, with its shape.
  torch::Tensor key;    ///< The rotated key, with its shape.
};

/// Rotates the channel pairs (i, i + r/2) of the first r channels by their angles and copies the
/// channels beyond r. Returns new, contiguous tensors.
///
/// `query` and `key` are (batch, tokens, heads, width) with contiguous channels. `cos` and `sin`
/// are (batch or 1, tokens, 1, r/2). On a GPU pass the angles in float32: they are not rounded to
/// the dtype of the query.
Rotated rotary(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& cos,
               const torch::Tensor& sin);

/// Whether `linear_cross_entropy` has a kernel for these tensors: on CUDA, `hidden` and `weight` in
/// bfloat16, no autocast.
bool linear_cross_entropy_applies(const torch::Tensor& hidden, const torch::Tensor& weight,
                                  const torch::Tensor& bias);

/// scale · Σ cross_entropy(hidden · weightᵀ + bias, labels) in float32, without holding all
/// logits at once.
///
/// Rows are processed in chunks. The bfloat16 logits of a chunk are overwritten by their gradient,
/// from which the gradients of `hidden`, `weight` and `bias` are computed in the same pass. So the
/// loss can be used for one backward pass only.
///
/// `hidden` is (rows, width), `weight` (classes, width), `bias` (classes) or undefined, `labels`
/// (rows) of int64 with `ignore_index` where there is no label. `scale` is a float32 tensor without
/// dimensions on the device, usually one over the number of items. A label outside the classes
/// makes the loss NaN.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& bias, const torch::Tensor& labels,
                                   const torch::Tensor& scale, int64_t ignore_index = -100);

}  // namespace gradus::kernels
