// 8-bit floating point: the largest magnitude of matrices, their cast with the turned copy that the
// products of gradients read, and the gate of a Llama's MLP over rows that lie apart.
#include <cuda_fp8.h>

#include <algorithm>

#include "cuda/kernels/vector.cuh"

namespace gradus::cuda {
namespace {

constexpr int kThreadsFp8 = 256;
constexpr int kTile = 128;                        // rows and columns that a block casts
constexpr int kUnit = 4 * kThreadsFp8 * kVector;  // elements of a line that a block reads at once
constexpr float kSmallest = 1e-30f;  // magnitudes below count as this: factors stay finite

/// Lines of `width` elements, each cut into units; a matrix without gaps is one line.
struct Lines {
  const Bfloat* in;
  int64_t stride, width, units, units_of_line;
};
struct AllLines {
  Lines lines[kMaxFp8Parts];
  int64_t units;
};

/// The block's maximum goes to `to`, which is at least 0: its bits are ordered as its values.
__device__ __forceinline__ void keep_maximum(float value, float* to) {
  __shared__ float warps[kThreadsFp8 / kWarp];
  value = warp_max(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  value = warp_max(threadIdx.x < kThreadsFp8 / kWarp ? warps[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(to), __float_as_uint(value));
}

__device__ __forceinline__ float largest_of(const float (&values)[kVector], float largest) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) largest = fmaxf(largest, fabsf(values[i]));
  return largest;
}

__global__ void __launch_bounds__(kThreadsFp8) fp8_amax_units(AllLines all, float* amax) {
  float largest = 0.0f;
  for (int64_t unit = blockIdx.x; unit < all.units; unit += gridDim.x) {
    int part = 0;
    int64_t own = unit;
    while (own >= all.lines[part].units) own -= all.lines[part++].units;
    const Lines& lines = all.lines[part];
    const int64_t line = own / lines.units_of_line,
                  first = (own - line * lines.units_of_line) * kUnit;
    const Bfloat* in = lines.in + line * lines.stride;
    float values[4][kVector];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t column = first + (i * kThreadsFp8 + threadIdx.x) * kVector;
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[i][j] = 0.0f;
      if (column < lines.width) load(in + column, values[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = largest_of(values[i], largest);
  }
  keep_maximum(largest, amax);
}

struct Tiles {
  int64_t first[kMaxFp8Parts];  // number of a part's first tile
  int across[kMaxFp8Parts];     // its tiles side by side
};

template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint2 narrowed(const float (&values)[kVector], float factor) {
  unsigned words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    const float2 pair = make_float2(values[2 * i] * factor, values[2 * i + 1] * factor);
    const unsigned both = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, kFormat);
    words[i / 2] |= both << (16 * (i % 2));
  }
  return make_uint2(words[0], words[1]);
}

/// Four rows of four bytes become four columns of four bytes.
__device__ __forceinline__ void turn_bytes(unsigned a, unsigned b, unsigned c, unsigned d,
                                           unsigned (&columns)[4]) {
  const unsigned ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140),
                 ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
  columns[0] = __byte_perm(ab, cd, 0x5410);
  columns[1] = __byte_perm(ab, cd, 0x7632);
  columns[2] = __byte_perm(ab_high, cd_high, 0x5410);
  columns[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

/// Where in a line of the turned tile a word of four rows lies: groups of four words change places
/// with the column, so that neighbouring threads write to different banks.
__device__ __forceinline__ int word_place(int column, int word) {
  return (((word >> 2) ^ ((column >> 3) & 7)) << 2) | (word & 3);
}

// A block casts a tile: a thread reads four rows of eight columns twice, writes them as they lie,
// and leaves the turned bytes in shared memory, from which whole columns are written.
template <__nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreadsFp8) fp8_cast_tiles(Fp8Cast work, Tiles tiles) {
  __shared__ __align__(16) unsigned turned[kTile][kTile / 4];
  constexpr float kLimit = kFormat == __NV_E4M3 ? 448.0f : 57344.0f;
  const float largest = fmaxf(*work.amax, kSmallest), factor = kLimit / largest;
  if (blockIdx.x == 0 && threadIdx.x == 0) *work.scale = largest / kLimit;
  int index = work.count - 1;
  while (int64_t(blockIdx.x) < tiles.first[index]) --index;
  const Fp8Part& part = work.parts[index];
  const int64_t tile = int64_t(blockIdx.x) - tiles.first[index];
  const int64_t first_row = tile / tiles.across[index] * kTile,
                first_column = tile % tiles.across[index] * kTile;
  const Bfloat* in = static_cast<const Bfloat*>(part.in);
  const int across = threadIdx.x % 16, down = threadIdx.x / 16;
  const int64_t column = first_column + across * kVector;
#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
    const int word = pass * 16 + down;
    const int64_t row = first_row + word * 4;
    if (row >= part.rows || column >= part.columns) continue;
    uint2 bytes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float values[kVector];
      load(in + (row + i) * part.stride + column, values);
      bytes[i] = narrowed<kFormat>(values, factor);
    }
    if (part.out != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<uint2*>(static_cast<uint8_t*>(part.out) + (row + i) * work.out_stride +
                                  column) = bytes[i];
    }
    if (part.turned == nullptr) continue;
    unsigned low[4], high[4];
    turn_bytes(bytes[0].x, bytes[1].x, bytes[2].x, bytes[3].x, low);
    turn_bytes(bytes[0].y, bytes[1].y, bytes[2].y, bytes[3].y, high);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int left = across * kVector + j, right = left + 4;
      turned[left][word_place(left, word)] = low[j];
      turned[right][word_place(right, word)] = high[j];
    }
  }
  if (part.turned == nullptr) return;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTile * kTile / 16 / kThreadsFp8; ++i) {
    const int item = i * kThreadsFp8 + threadIdx.x, own = item / 8, group = item % 8;
    const int64_t row = first_row + group * 16;
    if (first_column + own >= part.columns || row >= part.rows) continue;
    *reinterpret_cast<uint4*>(static_cast<uint8_t*>(part.turned) +
                              (first_column + own) * work.turned_stride + row) =
        *reinterpret_cast<const uint4*>(&turned[own][word_place(own, group * 4)]);
  }
}

__device__ __forceinline__ float share_of(float x) { return 1.0f / (1.0f + __expf(-x)); }

constexpr int kGatedUnit = kThreadsFp8 * kVector;

__global__ void __launch_bounds__(kThreadsFp8)
    gated_forward_units(GatedRows work, int units_of_row, int64_t units) {
  float largest = 0.0f;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t row = unit / units_of_row;
    const int64_t column = (unit - row * units_of_row) * kGatedUnit + threadIdx.x * kVector;
    if (column >= work.columns) continue;
    float g[kVector], u[kVector];
    load(static_cast<const Bfloat*>(work.gate) + row * work.gate_stride + column, g);
    load(static_cast<const Bfloat*>(work.up) + row * work.up_stride + column, u);
#pragma unroll
    for (int j = 0; j < kVector; ++j) u[j] = rounded<Bfloat>(g[j] * share_of(g[j]) * u[j]);
    largest = largest_of(u, largest);
    store(static_cast<Bfloat*>(work.product) + row * work.columns + column, u);
  }
  keep_maximum(largest, work.amax);
}

__global__ void __launch_bounds__(kThreadsFp8)
    gated_backward_units(GatedRows work, int units_of_row, int64_t units) {
  const int64_t unit = blockIdx.x, row = unit / units_of_row;
  const int64_t column = (unit - row * units_of_row) * kGatedUnit + threadIdx.x * kVector;
  if (column >= work.columns) return;
  float d[kVector], g[kVector], u[kVector], to_gate[kVector], to_up[kVector];
  load(static_cast<const Bfloat*>(work.grad) + row * work.columns + column, d);
  load(static_cast<const Bfloat*>(work.gate) + row * work.gate_stride + column, g);
  load(static_cast<const Bfloat*>(work.up) + row * work.up_stride + column, u);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float share = share_of(g[j]);
    to_gate[j] = d[j] * u[j] * share * (1.0f + g[j] * (1.0f - share));
    to_up[j] = d[j] * g[j] * share;
  }
  store(static_cast<Bfloat*>(work.grad_gate) + row * work.grad_stride + column, to_gate);
  store(static_cast<Bfloat*>(work.grad_up) + row * work.grad_stride + column, to_up);
}

unsigned blocks_for(int64_t units) {
  return unsigned(std::min<int64_t>(units, int64_t(multiprocessors()) * 8));
}

}  // namespace

cudaError_t fp8_amax(const Fp8Cast& work, cudaStream_t stream) {
  AllLines all{};
  for (int i = 0; i < work.count; ++i) {
    const Fp8Part& part = work.parts[i];
    const bool is_whole = part.stride == part.columns;
    Lines& lines = all.lines[i];
    lines.in = static_cast<const Bfloat*>(part.in);
    lines.stride = part.stride;
    lines.width = is_whole ? part.rows * part.columns : part.columns;
    lines.units_of_line = divided_up(lines.width, kUnit);
    lines.units = lines.units_of_line * (is_whole ? 1 : part.rows);
    all.units += lines.units;
  }
  const cudaError_t cleared = cudaMemsetAsync(work.amax, 0, sizeof(float), stream);
  if (cleared != cudaSuccess) return cleared;
  fp8_amax_units<<<blocks_for(all.units), kThreadsFp8, 0, stream>>>(all, work.amax);
  return cudaGetLastError();
}

cudaError_t fp8_cast(const Fp8Cast& work, cudaStream_t stream) {
  Tiles tiles{};
  int64_t count = 0;
  for (int i = 0; i < work.count; ++i) {
    tiles.first[i] = count;
    tiles.across[i] = int(divided_up(work.parts[i].columns, kTile));
    count += tiles.across[i] * divided_up(work.parts[i].rows, kTile);
  }
  if (work.wide_range)
    fp8_cast_tiles<__NV_E5M2><<<unsigned(count), kThreadsFp8, 0, stream>>>(work, tiles);
  else
    fp8_cast_tiles<__NV_E4M3><<<unsigned(count), kThreadsFp8, 0, stream>>>(work, tiles);
  return cudaGetLastError();
}

cudaError_t gated_forward(const GatedRows& work, cudaStream_t stream) {
  const cudaError_t cleared = cudaMemsetAsync(work.amax, 0, sizeof(float), stream);
  if (cleared != cudaSuccess) return cleared;
  const int units_of_row = int(divided_up(work.columns, kGatedUnit));
  const int64_t units = work.rows * units_of_row;
  gated_forward_units<<<blocks_for(units), kThreadsFp8, 0, stream>>>(work, units_of_row, units);
  return cudaGetLastError();
}

cudaError_t gated_backward(const GatedRows& work, cudaStream_t stream) {
  const int units_of_row = int(divided_up(work.columns, kGatedUnit));
  const int64_t units = work.rows * units_of_row;
  gated_backward_units<<<unsigned(units), kThreadsFp8, 0, stream>>>(work, units_of_row, units);
  return cudaGetLastError();
}

}  // namespace gradus::cuda
