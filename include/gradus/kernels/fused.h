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

/// The product that an adapter (LoRA) adds to a linear layer: scale · (x · aᵀ) · bᵀ.
struct LowRank {
  torch::Tensor a;     ///< (rank, in); undefined: nothing is added.
  torch::Tensor b;     ///< (out, rank).
  double scale = 1.0;  ///< Multiplies the product.
};

/// The results of `add_rms_norm_linear`.
struct NormedProjections {
  torch::Tensor sum;                   ///< residual + x, or x without a residual.
  std::vector<torch::Tensor> outputs;  ///< One per weight.
};

/// outputs[i] = linear(rms_norm(residual + x), weights[i], biases[i]). `residual` may be undefined,
/// `biases` may be empty. On a GPU the norm is recomputed in the backward pass instead of being
/// kept, its gradient is accumulated inside the matrix products, and there is no second derivative.
/// `lows`, one for each weight or none at all, add the products of adapters to the outputs.
NormedProjections add_rms_norm_linear(const torch::Tensor& residual, const torch::Tensor& x,
                                      const torch::Tensor& norm_weight, double eps,
                                      const std::vector<torch::Tensor>& weights,
                                      const std::vector<torch::Tensor>& biases,
                                      const std::vector<LowRank>& lows = {});

/// x · weightᵀ + bias with `weight` (out, in) and `bias` (out) or undefined. On a GPU a kernel
/// of its own sums the gradient of the bias.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);
/// x · weight + bias with `weight` (in, out), the form of GPT-2's layers.
torch::Tensor linear_in_out(const torch::Tensor& x, const torch::Tensor& weight,
                            const torch::Tensor& bias);

/// Whether `lora_linear` runs as described for these tensors: on a GPU with the plugin, all of one
/// dtype, no autocast.
bool lora_linear_applies(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias, const LowRank& low);
/// x · weightᵀ + bias + `low`, with `weight` (out, in), or (in, out) with `in_out`,
/// and `bias` (out) or undefined. On a GPU the second product is accumulated in the memory of the
/// first one, forward and backward, and a weight that needs no gradient is only read.
torch::Tensor lora_linear(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, const LowRank& low, bool in_out = false);

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
/// third of the memory of a Llama's MLP. `low` adds the product of an adapter, as `lora_linear`
/// does; there is then no second derivative on a GPU.
torch::Tensor swiglu_linear(const torch::Tensor& gate, const torch::Tensor& up,
                            const torch::Tensor& weight, const torch::Tensor& bias,
                            const LowRank& low = {});

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

/// Scores of labels by logits that are never held at once, (rows) in float32 each. Where there is
/// no label they are 0.
struct LinearTokenScores {
  torch::Tensor log_probs;         ///< Log probabilities of the labels.
  torch::Tensor entropy;           ///< Of the predicted distribution, in nats.
  torch::Tensor mean_logits;       ///< The mean over the classes; without gradient.
  torch::Tensor is_top1;           ///< 1 where the label is the most likely class.
  torch::Tensor log_sum_sq_probs;  ///< log Σ p²; without gradient.
};

/// Whether the two functions below have a kernel for these tensors: on a GPU with the plugin, all
/// of one dtype, no autocast.
bool linear_token_scores_apply(const torch::Tensor& hidden, const torch::Tensor& weight,
                               const torch::Tensor& bias);

/// Scores `labels` by (hidden · weightᵀ + bias) / temperature, never holding all logits.
/// Shapes and labels are those of `linear_cross_entropy`.
///
/// `log_probs` and `entropy` are differentiable: the backward pass forms the logits of each chunk
/// once more. A label outside the classes makes its log probability NaN.
LinearTokenScores linear_token_scores(const torch::Tensor& hidden, const torch::Tensor& weight,
                                      const torch::Tensor& bias, const torch::Tensor& labels,
                                      double temperature = 1.0, int64_t ignore_index = -100);

/// The results of `linear_token_loss`.
struct LinearTokenLoss {
  torch::Tensor loss;        ///< Without dimensions.
  LinearTokenScores scores;  ///< All without gradients.
};

/// scale · Σ -log p(label), and the scores. With `weighted` each one is multiplied by p(label),
/// which gets no gradient (dynamic fine-tuning). As in `linear_cross_entropy` the gradients are
/// computed in the same pass, and the loss can be used for one backward pass only.
LinearTokenLoss linear_token_loss(const torch::Tensor& hidden, const torch::Tensor& weight,
                                  const torch::Tensor& bias, const torch::Tensor& labels,
                                  const torch::Tensor& scale, bool weighted = false,
                                  int64_t ignore_index = -100);

}  // namespace gradus::kernels
