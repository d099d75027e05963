#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// Frozen weights in 4 bits, in the layout of bitsandbytes (NormalFloat 4, blocks of 64).
namespace gradus::kernels {

/// Elements that share a scale.
constexpr int64_t kNf4Block = 64;

/// A matrix in 4 bits, as bitsandbytes' `quantize_4bit` gives it.
struct Nf4Matrix {
  /// (elements / 2, 1) of uint8: two codes in a byte, the first in the upper half.
  torch::Tensor packed;
  /// The largest magnitude of each block, (blocks) in float32. With `codes`: of each 256 scales.
  torch::Tensor absmax;
  torch::Tensor codes;   ///< (blocks) of uint8: the scales in 8 bits; undefined where they are not.
  torch::Tensor values;  ///< (256) in float32: what the codes of scales stand for.
  torch::Tensor offset;  ///< Without dimensions: added to all scales.
  std::vector<int64_t> sizes;  ///< Of the matrix.
};

/// The sixteen values, rising from -1 to 1. On the CPU.
torch::Tensor nf4_values();

/// `matrix` (an even number of elements) in 4 bits, with one float32 scale for each block. Has the
/// bits of bitsandbytes' `quantize_4bit` without `compress_statistics`. On the matrix's device.
Nf4Matrix nf4_quantized(const torch::Tensor& matrix);

/// What the matrix stands for, as `dtype`. One kernel on a GPU; never waits.
torch::Tensor nf4_dense(const Nf4Matrix& matrix, torch::ScalarType dtype);

/// The weight of a layer that lies in 4 bits, as long as this lives.
///
/// `stand_in` has the sizes of the matrix, bfloat16, and the memory of one number: it takes the
/// place of the layer's weight. `linear`, `lora_linear`, `add_rms_norm_linear` and `swiglu_linear`
/// recognise it and multiply by the dense matrix, which they form in each direction anew. Whatever
/// else reads it finds zeros. It gets no gradient.
/// Thread-safety: may be made, destroyed and used in different threads.
class Nf4Weight {
 public:
  /// A stand-in for `matrix` on its device.
  explicit Nf4Weight(Nf4Matrix matrix);
  ~Nf4Weight();
  Nf4Weight(const Nf4Weight&) = delete;
  Nf4Weight& operator=(const Nf4Weight&) = delete;

  /// What the layer holds as its weight.
  const torch::Tensor& stand_in() const { return stand_in_; }
  /// The values.
  const Nf4Matrix& matrix() const { return matrix_; }

  /// Whether `weight` stands for a matrix in 4 bits.
  static bool is_one(const torch::Tensor& weight);

 private:
  Nf4Matrix matrix_;
  torch::Tensor stand_in_;
};

}  // namespace gradus::kernels
