#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/launch.h"

/// What the kernels share: eight elements at a time in 16-byte accesses, computed in float32, and
/// sums over a warp or a block.
namespace gradus::cuda {

using Half = __half;
using Bfloat = __nv_bfloat16;

constexpr int kVector = 8;
constexpr int kWarp = 32;

__device__ __forceinline__ float2 unpacked(__half2 pair) { return __half22float2(pair); }
__device__ __forceinline__ float2 unpacked(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }

template <typename T>
struct Traits;
template <>
struct Traits<Half> {
  using Pair = __half2;
  static __device__ __forceinline__ Pair packed(float a, float b) {
    return __floats2half2_rn(a, b);
  }
  static __device__ __forceinline__ Half narrow(float a) { return __float2half_rn(a); }
  static __device__ __forceinline__ float widen(Half a) { return __half2float(a); }
};
template <>
struct Traits<Bfloat> {
  using Pair = __nv_bfloat162;
  static __device__ __forceinline__ Pair packed(float a, float b) {
    return __floats2bfloat162_rn(a, b);
  }
  static __device__ __forceinline__ Bfloat narrow(float a) { return __float2bfloat16_rn(a); }
  static __device__ __forceinline__ float widen(Bfloat a) { return __bfloat162float(a); }
};
template <>
struct Traits<float> {
  static __device__ __forceinline__ float narrow(float a) { return a; }
  static __device__ __forceinline__ float widen(float a) { return a; }
};

template <typename T>
__device__ __forceinline__ float rounded(float a) {
  return Traits<T>::widen(Traits<T>::narrow(a));
}

template <typename T>
__device__ __forceinline__ void load(const T* from, float (&values)[kVector]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  using Pair = typename Traits<T>::Pair;
  const Pair* pairs = reinterpret_cast<const Pair*>(&raw);
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    const float2 pair = unpacked(pairs[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}
__device__ __forceinline__ void load(const float* from, float (&values)[kVector]) {
  const float4 a = *reinterpret_cast<const float4*>(from),
               b = *reinterpret_cast<const float4*>(from + 4);
  values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
  values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
}

template <typename T>
__device__ __forceinline__ void store(T* to, const float (&values)[kVector]) {
  uint4 raw;
  using Pair = typename Traits<T>::Pair;
  Pair* pairs = reinterpret_cast<Pair*>(&raw);
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i)
    pairs[i] = Traits<T>::packed(values[2 * i], values[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = raw;
}
__device__ __forceinline__ void store(float* to, const float (&values)[kVector]) {
  *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(values[4], values[5], values[6], values[7]);
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

/// The sums of two values over kThreads neighbouring threads (a warp or the whole block), for all
/// of them. `scratch` holds two numbers per warp; a block of one warp per group does not use it.
template <int kThreads>
__device__ __forceinline__ void group_sum(float& a, float& b, float* scratch) {
  a = warp_sum(a);
  b = warp_sum(b);
  if constexpr (kThreads > kWarp) {
    constexpr int kWarps = kThreads / kWarp;
    const int warp = threadIdx.x / kWarp;
    if (threadIdx.x % kWarp == 0) {
      scratch[warp] = a;
      scratch[kWarps + warp] = b;
    }
    __syncthreads();
    a = b = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      a += scratch[i];
      b += scratch[kWarps + i];
    }
    __syncthreads();
  }
}

/// Calls `run(T())` for the C++ type of an element type.
template <typename Run>
cudaError_t with_type(Element type, const Run& run) {
  switch (type) {
    case Element::float32: run(float()); break;
    case Element::float16: run(Half()); break;
    case Element::bfloat16: run(Bfloat()); break;
  }
  return cudaGetLastError();
}

/// Multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 1;
  return count;
}

inline int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace gradus::cuda
