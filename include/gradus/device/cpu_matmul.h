#pragma once

#include <string_view>

namespace gradus::device {

/// Chooses who multiplies float32 matrices on the CPU, for the whole process, models of your own
/// included: "torch", LibTorch's BLAS (MKL), whose numbers are those of Python; or "onednn", a
/// library that LibTorch has, too. Its sums are rounded in another order (1e-7 of a sum), and on
/// processors for which MKL has no kernels of its own it is about twice as fast
/// (`measure_cpu_matmul`). Products of fewer than a million multiplications, and those of other
/// types, stay with torch. Throws G-CONF-3 for another name, and where LibTorch has no oneDNN.
/// Not to be called while other threads compute.
void use_cpu_matmul(std::string_view name);

/// The name that `use_cpu_matmul` was given last; "torch" at first.
std::string_view cpu_matmul();

/// What both reach here, in GFLOP/s.
struct CpuMatmulSpeed {
  double torch = 0;   ///< LibTorch's BLAS.
  double onednn = 0;  ///< oneDNN; 0 where LibTorch has none.
};
/// Multiplies matrices of 512 by 512 and 512 by 1024 elements with torch's current threads, for
/// about 0.1 s.
CpuMatmulSpeed measure_cpu_matmul();

}  // namespace gradus::device
