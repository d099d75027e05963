// Weights in 4 bits become dense before a product.
#include "cuda/kernels/vector.cuh"

namespace gradus::cuda {
namespace {

constexpr int kThreadsNf4 = 256;
constexpr int kPerThread = 16;  // elements, a quarter of a block

__device__ __constant__ float kNormalFloat[16] = {-1.0f,
                                                  -0.6961928009986877f,
                                                  -0.5250730514526367f,
                                                  -0.39491748809814453f,
                                                  -0.28444138169288635f,
                                                  -0.18477343022823334f,
                                                  -0.09105003625154495f,
                                                  0.0f,
                                                  0.07958029955625534f,
                                                  0.16093020141124725f,
                                                  0.24611230194568634f,
                                                  0.33791524171829224f,
                                                  0.44070982933044434f,
                                                  0.5626170039176941f,
                                                  0.7229568362236023f,
                                                  1.0f};

template <typename T>
__global__ void __launch_bounds__(kThreadsNf4) nf4_dense_vectors(Nf4Dense work, int64_t threads) {
  __shared__ float table[16];  // sixteen banks: no two values are in one
  if (threadIdx.x < 16) table[threadIdx.x] = kNormalFloat[threadIdx.x];
  __syncthreads();
  const int64_t i = int64_t(blockIdx.x) * kThreadsNf4 + threadIdx.x;
  if (i >= threads) return;
  const int64_t block = i / 4;
  // Rounded after each operation, as bitsandbytes does: no fused multiplication and addition.
  const float scale =
      work.codes == nullptr
          ? work.absmax[block]
          : __fadd_rn(__fmul_rn(work.values[work.codes[block]], work.absmax[block / 256]),
                      *work.offset);
  const uint2 raw = *reinterpret_cast<const uint2*>(work.packed + i * (kPerThread / 2));
  const unsigned words[2] = {raw.x, raw.y};
  T* out = static_cast<T*>(work.out) + i * kPerThread;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float values[kVector];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned byte = (words[half] >> (8 * j)) & 0xff;
      values[2 * j] = table[byte >> 4] * scale;
      values[2 * j + 1] = table[byte & 15] * scale;
    }
    store(out + half * kVector, values);
  }
}

}  // namespace

cudaError_t nf4_dense(const Nf4Dense& work, cudaStream_t stream) {
  const int64_t threads = work.count / kPerThread;
  const auto blocks = unsigned(divided_up(threads, kThreadsNf4));
  return with_type(work.type, [&](auto type) {
    nf4_dense_vectors<decltype(type)><<<blocks, kThreadsNf4, 0, stream>>>(work, threads);
  });
}

}  // namespace gradus::cuda
