#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// The kernels as plain functions: pointers on the current device, sizes, a stream. Nothing of
/// torch, so that nvcc need not read it.
///
/// All only enqueue work, allocate nothing and may be captured. They return the error of the
/// launch. Pointers of rows and vectors must be aligned to 16 bytes; the callers in this folder see
/// to it.
namespace gradus::cuda {

enum class Element : uint8_t { float32, float16, bfloat16 };

// --- norm.cu -----------------------------------------------------------------

constexpr int kMaxNormWidth = 8192;  // and a multiple of 8

/// Rows of `width` elements. `residual`, `bias` and `mean` may be null: no sum, or RMSNorm.
struct NormForward {
  Element type;
  const void *residual, *x, *weight, *bias;
  void *sum, *out;     // `sum` is written when there is a residual
  float *mean, *rstd;  // (rows)
  int64_t rows;
  int width;
  float eps;
};
cudaError_t norm_forward(const NormForward& norm, cudaStream_t stream);

struct NormBackward {
  Element type;
  const void *grad_out, *grad_sum, *sum, *weight;  // `grad_sum` may be null
  const float *mean, *rstd;                        // `mean` null: RMSNorm
  void *grad_x, *grad_weight, *grad_bias;
  float* partial;  // norm_backward_scratch() floats
  int64_t rows;
  int width;
};
int64_t norm_backward_scratch(int64_t rows, int width, bool layer_norm);
cudaError_t norm_backward(const NormBackward& norm, cudaStream_t stream);

// --- elementwise.cu ----------------------------------------------------------

/// `count` is a multiple of 8.
cudaError_t swiglu_forward(Element type, const void* gate, const void* up, void* out, int64_t count,
                           cudaStream_t stream);
/// `product`, where not null, becomes silu(gate) · up.
cudaError_t swiglu_backward(Element type, const void* grad, const void* gate, const void* up,
                            void* grad_gate, void* grad_up, void* product, int64_t count,
                            cudaStream_t stream);

struct RotaryTensor {
  const void* in;
  void* out;  // (batch, tokens, heads, width), contiguous
  int64_t batch_stride, token_stride, head_stride;
  int heads;
};
/// Strides, `width` and half of `rotated` are multiples of 8. Angles: (angle rows, tokens, rotated
/// / 2), `angle_rows` 1 or batch.
struct Rotary {
  Element type;
  RotaryTensor query, key;
  const float *cos, *sin;
  int64_t batch, tokens, angle_rows;
  int width, rotated;
  float direction;  // 1, or -1 for the backward pass
};
cudaError_t rotary(const Rotary& work, cudaStream_t stream);

/// Copies three (batch, tokens, heads, width) with any strides, multiples of 8, to (batch, tokens,
/// 3, heads, width).
struct PackHeads {
  Element type;
  const void* in[3];
  int64_t batch_stride[3], token_stride[3], head_stride[3];
  void* out;
  int64_t batch, tokens;
  int heads, width;
};
cudaError_t pack_heads(const PackHeads& work, cudaStream_t stream);

// --- cross_entropy.cu --------------------------------------------------------

struct CrossEntropy {
  Element type;
  void* logits;  // (rows, columns), columns a multiple of 8; overwritten by scale · gradient when
                 // `gradient`
  const int64_t* labels;
  const float* scale;
  float* losses;  // (rows), not scaled; 0 where the label is ignored, NaN where it is none of the
                  // classes
  int64_t rows, columns, classes, ignore_index;
  bool gradient;
};
cudaError_t cross_entropy(const CrossEntropy& work, cudaStream_t stream);

// --- token_scores.cu ---------------------------------------------------------

constexpr int kTokenScores =
    5;  // log probability, entropy, mean logit, is the best, log sum of squares

/// All logits are multiplied by `factor` first. Where there is no label the scores are 0.
struct TokenScores {
  Element type;
  void* logits;  // (rows, columns), columns a multiple of 8; overwritten by their gradient when
                 // `factors` are given
  const int64_t* labels;
  float* scores;                           // (rows, kTokenScores)
  const float *factors, *entropy_factors;  // (rows), gradients of the scores; both may be null
  int64_t rows, columns, classes, ignore_index;
  float factor;
  bool weighted;  // each factor is multiplied by the label's probability
};
cudaError_t token_scores(const TokenScores& work, cudaStream_t stream);

// --- fp8.cu ------------------------------------------------------------------

constexpr int kMaxFp8Parts = 4;

/// A matrix of bfloat16, its rows `stride` elements apart. Rows and columns are multiples of 16,
/// the stride is a multiple of 8.
struct Fp8Part {
  const void* in;
  int64_t rows, columns, stride;
  void *out, *turned;  // where its first element goes; null: not wanted
};
/// Several matrices with one factor, so that the largest magnitude among them becomes the largest
/// number of the format: e4m3 (448), or e5m2 (57344) with `wide_range`.
struct Fp8Cast {
  Fp8Part parts[kMaxFp8Parts];
  int count;
  int64_t out_stride, turned_stride;  // multiples of 16
  float* amax;                        // written by fp8_amax, or by gated_forward
  float* scale;                       // becomes 1 / factor
  bool wide_range;
};
cudaError_t fp8_amax(const Fp8Cast& work, cudaStream_t stream);
cudaError_t fp8_cast(const Fp8Cast& work, cudaStream_t stream);

/// silu(gate) · up for rows of `columns` bfloat16, a multiple of 8; `amax` becomes the largest
/// magnitude of the product.
struct GatedRows {
  const void *gate, *up;
  int64_t rows, columns, gate_stride, up_stride;
  void* product;     // (rows, columns)
  const void* grad;  // of the product, (rows, columns); for the backward pass
  void *grad_gate, *grad_up;
  int64_t grad_stride;  // of grad_gate and grad_up
  float* amax;
};
cudaError_t gated_forward(const GatedRows& work, cudaStream_t stream);
cudaError_t gated_backward(const GatedRows& work, cudaStream_t stream);

// --- nf4.cu ------------------------------------------------------------------

/// A matrix in 4 bits (bitsandbytes' NF4) becomes dense; `count` is a multiple of 64.
struct Nf4Dense {
  Element type;
  const uint8_t* packed;
  const float* absmax;   // of each 64 elements, or with `codes` of each 256 scales
  const uint8_t* codes;  // of scales; null: they are in `absmax`
  const float* values;   // what the codes stand for
  const float* offset;   // of all scales
  void* out;
  int64_t count;
};
cudaError_t nf4_dense(const Nf4Dense& work, cudaStream_t stream);

// --- multi_tensor.cu ---------------------------------------------------------

struct AdamWTensor {
  float* master;
  void* weight;  // null: none
  const void* grad;
  float *exp_avg, *exp_avg_sq;
  int64_t count;
  Element weight_type, grad_type;
};
struct AdamWStep {
  const float *lr, *step, *clip_coef, *grad_scale, *found_inf;  // the last three may be null
  double beta1, beta2;
  float eps, weight_decay;
  bool maximize;
};
cudaError_t adamw(const AdamWTensor* tensors, size_t count, const AdamWStep& step,
                  cudaStream_t stream);

struct ListTensor {
  void* data;
  int64_t count;
  Element type;
};
/// Floats of scratch that `list_norm` needs for these tensors.
int64_t list_norm_scratch(const ListTensor* tensors, size_t count);
/// The L2 norm of all elements, to `result`.
cudaError_t list_norm(const ListTensor* tensors, size_t count, float* partial, float* result,
                      cudaStream_t stream);
/// Every element times `*factor`; nothing is touched when that is exactly 1.
cudaError_t list_scale(const ListTensor* tensors, size_t count, const float* factor,
                       cudaStream_t stream);

/// Sums of the columns of (rows, width), to (width) in the same type; width a multiple of 8.
int64_t column_sum_scratch(int64_t rows, int64_t width);
cudaError_t column_sum(Element type, const void* x, void* out, float* partial, int64_t rows,
                       int64_t width, cudaStream_t stream);

}  // namespace gradus::cuda
