#pragma once

#include <torch/types.h>

#include <optional>
#include <tuple>
#include <vector>

/// The operators of the namespace `gradus` in torch's dispatcher, below autograd.
///
/// Every one has a plain form for any device (`plain::`); the CUDA plugin registers kernels for the
/// key CUDA under the same names.
namespace gradus::kernels {

using torch::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// What the columns of `token_scores_` hold.
enum TokenScore { kLogProb, kEntropy, kMeanLogit, kIsTop1, kLogSumSqProbs, kTokenScores };

namespace ops {

/// -> sum (undefined without residual), normalised, mean, reciprocal standard deviation
std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm(const OptionalTensor& residual,
                                                          const Tensor& x, const Tensor& weight,
                                                          const Tensor& bias, double eps);
/// `sum`: what was normalised -> gradients of sum, weight, bias
std::tuple<Tensor, Tensor, Tensor> add_layer_norm_backward(const Tensor& grad_out,
                                                           const OptionalTensor& grad_sum,
                                                           const Tensor& sum, const Tensor& weight,
                                                           const Tensor& mean, const Tensor& rstd);
/// -> sum (undefined without residual), normalised, reciprocal root of the mean square
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const OptionalTensor& residual, const Tensor& x,
                                                const Tensor& weight, double eps);
std::tuple<Tensor, Tensor> add_rms_norm_backward(const Tensor& grad_out,
                                                 const OptionalTensor& grad_sum, const Tensor& sum,
                                                 const Tensor& weight, const Tensor& rstd);
Tensor swiglu(const Tensor& gate, const Tensor& up);
/// -> gradients of gate and up, and swiglu(gate, up) when `product` (else undefined)
std::tuple<Tensor, Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate,
                                                   const Tensor& up, bool product);
/// The same, written over `gate` and `up`.
void swiglu_backward_(const Tensor& grad, Tensor gate, Tensor up);
/// `inverse` turns the other way round: the backward pass
std::tuple<Tensor, Tensor> rotary(const Tensor& query, const Tensor& key, const Tensor& cos,
                                  const Tensor& sin, bool inverse);
/// Writes the loss of every row; with `gradient`, `logits` become scale · gradient. Columns from
/// `classes` on are padding.
void cross_entropy_(Tensor logits, const Tensor& labels, const Tensor& scale, Tensor losses,
                    int64_t classes, int64_t ignore_index, bool gradient);
/// Writes the scores (rows, kTokenScores) of the labels by logits / temperature; 0 where there is
/// no label. With `factors` (rows), the gradients of the log probabilities, `logits` become their
/// own gradient; `weighted` multiplies each factor by the label's probability. `entropy_factors`
/// are the gradients of the entropies. Columns from `classes` on are padding.
void token_scores_(Tensor logits, const Tensor& labels, Tensor scores,
                   const OptionalTensor& factors, const OptionalTensor& entropy_factors,
                   double temperature, int64_t classes, int64_t ignore_index, bool weighted);
/// Three times (batch, tokens, heads, width) -> (batch, tokens, 3, heads, width)
Tensor pack_heads(const Tensor& query, const Tensor& key, const Tensor& value);
/// Sums of the columns of a matrix.
Tensor column_sum(const Tensor& x);
void adamw_(at::TensorList masters, at::TensorList weights, at::TensorList grads,
            at::TensorList exp_avg, at::TensorList exp_avg_sq, const Tensor& lr, const Tensor& step,
            const OptionalTensor& clip_coef, const OptionalTensor& grad_scale,
            const OptionalTensor& found_inf, double beta1, double beta2, double eps,
            double weight_decay, bool maximize);
Tensor grad_norm(at::TensorList grads);
void scale_(at::TensorList tensors, const Tensor& factor);
/// Matrices in bfloat16, laid side by side (`dim` 1) or below each other (`dim` 0), in 8-bit
/// floating point: e4m3, or e5m2 with `wide_range`. -> as it lies (R, C) when `rows`, turned (C, R)
/// when `columns`, and the number (1) that its values are to be multiplied by. `amax` is the
/// largest magnitude where it is known.
std::tuple<Tensor, Tensor, Tensor> fp8_cast(at::TensorList parts, int64_t dim, bool wide_range,
                                            bool rows, bool columns, const OptionalTensor& amax);
/// a · bᵀ + bias in bfloat16 from (m, k) and (n, k) of `fp8_cast`. `fast` adds with less
/// precision.
Tensor fp8_product(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                   const OptionalTensor& bias, bool fast);
/// silu(gate) · up of matrices whose rows may lie apart -> the product and its largest magnitude
/// (1)
std::tuple<Tensor, Tensor> gated_rows(const Tensor& gate, const Tensor& up);
/// -> the gradients of gate and up, side by side in one matrix
Tensor gated_rows_backward(const Tensor& grad, const Tensor& gate, const Tensor& up);
/// The matrix of an `Nf4Matrix` with these members.
Tensor nf4_dense(const Tensor& packed, const Tensor& absmax, const OptionalTensor& codes,
                 const OptionalTensor& values, const OptionalTensor& offset, at::IntArrayRef sizes,
                 at::ScalarType type);

}  // namespace ops

/// The same made of ATen operations.
namespace plain {

std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm(const OptionalTensor& residual,
                                                          const Tensor& x, const Tensor& weight,
                                                          const Tensor& bias, double eps);
std::tuple<Tensor, Tensor, Tensor> add_layer_norm_backward(const Tensor& grad_out,
                                                           const OptionalTensor& grad_sum,
                                                           const Tensor& sum, const Tensor& weight,
                                                           const Tensor& mean, const Tensor& rstd);
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const OptionalTensor& residual, const Tensor& x,
                                                const Tensor& weight, double eps);
std::tuple<Tensor, Tensor> add_rms_norm_backward(const Tensor& grad_out,
                                                 const OptionalTensor& grad_sum, const Tensor& sum,
                                                 const Tensor& weight, const Tensor& rstd);
Tensor swiglu(const Tensor& gate, const Tensor& up);
std::tuple<Tensor, Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate,
                                                   const Tensor& up, bool product);
void swiglu_backward_(const Tensor& grad, Tensor gate, Tensor up);
/// One tensor of `rotary`.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse);
std::tuple<Tensor, Tensor> rotary(const Tensor& query, const Tensor& key, const Tensor& cos,
                                  const Tensor& sin, bool inverse);
void cross_entropy_(Tensor logits, const Tensor& labels, const Tensor& scale, Tensor losses,
                    int64_t classes, int64_t ignore_index, bool gradient);
void token_scores_(Tensor logits, const Tensor& labels, Tensor scores,
                   const OptionalTensor& factors, const OptionalTensor& entropy_factors,
                   double temperature, int64_t classes, int64_t ignore_index, bool weighted);
Tensor pack_heads(const Tensor& query, const Tensor& key, const Tensor& value);
Tensor column_sum(const Tensor& x);
void adamw_(at::TensorList masters, at::TensorList weights, at::TensorList grads,
            at::TensorList exp_avg, at::TensorList exp_avg_sq, const Tensor& lr, const Tensor& step,
            const OptionalTensor& clip_coef, const OptionalTensor& grad_scale,
            const OptionalTensor& found_inf, double beta1, double beta2, double eps,
            double weight_decay, bool maximize);
Tensor grad_norm(at::TensorList grads);
void scale_(at::TensorList tensors, const Tensor& factor);
std::tuple<Tensor, Tensor, Tensor> fp8_cast(at::TensorList parts, int64_t dim, bool wide_range,
                                            bool rows, bool columns, const OptionalTensor& amax);
Tensor fp8_product(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                   const OptionalTensor& bias, bool fast);
std::tuple<Tensor, Tensor> gated_rows(const Tensor& gate, const Tensor& up);
Tensor gated_rows_backward(const Tensor& grad, const Tensor& gate, const Tensor& up);
Tensor nf4_dense(const Tensor& packed, const Tensor& absmax, const OptionalTensor& codes,
                 const OptionalTensor& values, const OptionalTensor& offset, at::IntArrayRef sizes,
                 at::ScalarType type);
/// The CTC loss of each row (rows) and its gradient with respect to `log_probs`, which are (frames,
/// rows, symbols); `targets` are padded (rows, length). Exported steps call it as gradus's operator
/// (tools/export_speech.py), because torch's own makes a tensor whose size follows from the values.
/// Waits for the device.
std::tuple<Tensor, Tensor> ctc_loss_with_gradient(const Tensor& log_probs, const Tensor& targets,
                                                  const Tensor& input_lengths,
                                                  const Tensor& target_lengths, int64_t blank,
                                                  bool zero_infinity);

}  // namespace plain

/// Whether the form with its own backward is to run for tensors like `x`: on a GPU with the plugin,
/// in a dtype of the kernels, contiguous and aligned for them. Not under autocast, which would
/// change types half-way.
bool takes_kernel(const Tensor& x);
/// Whether `add_rms_norm` (or, without residual, `rms_norm`) has a kernel for these.
bool takes_norm_kernel(const Tensor& residual, const Tensor& x, const Tensor& weight);
/// The same for the dtype and device alone, whatever the strides.
bool takes_kernel_of_any_layout(const Tensor& x);

}  // namespace gradus::kernels
