#include <algorithm>

#include "cuda/kernels/vector.cuh"

// LayerNorm and RMSNorm with the residual's sum before them. A narrow row belongs to one warp, a
// wider one to a block; every thread keeps its part of the row in registers, so that the row is
// read once.
namespace gradus::cuda {
namespace {

constexpr int kBlock = 256;

template <typename T, bool kLayerNorm, int kThreads, int kVectors>
__global__ void __launch_bounds__(kBlock) forward_rows(NormForward norm) {
  __shared__ float scratch[2 * kBlock / kWarp];
  const int lane = threadIdx.x % kThreads;
  const int64_t row = int64_t(blockIdx.x) * (kBlock / kThreads) + threadIdx.x / kThreads;
  if (row >= norm.rows) return;
  const int64_t start = row * norm.width;
  const T* x = static_cast<const T*>(norm.x) + start;
  const T* residual =
      norm.residual == nullptr ? nullptr : static_cast<const T*>(norm.residual) + start;
  T* sum = static_cast<T*>(norm.sum) + start;

  float values[kVectors][kVector];
  float total = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int column = (lane + k * kThreads) * kVector;
    if (column < norm.width) {
      load(x + column, values[k]);
      if (residual != nullptr) {
        float other[kVector];
        load(residual + column, other);
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[k][j] = rounded<T>(values[k][j] + other[j]);
        store(sum + column, values[k]);
      }
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        total += values[k][j];
        squares += values[k][j] * values[k][j];
      }
    }
  }
  group_sum<kThreads>(total, squares, scratch);
  const float mean = kLayerNorm ? total / norm.width : 0.0f;
  if constexpr (kLayerNorm) {  // squares of the differences: a mean far from 0 would cancel in
                               // E[x²] - E[x]²
    float differences = 0.0f, unused = 0.0f;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if ((lane + k * kThreads) * kVector >= norm.width) continue;
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        differences += (values[k][j] - mean) * (values[k][j] - mean);
    }
    group_sum<kThreads>(differences, unused, scratch);
    squares = differences;
  }
  const float rstd = rsqrtf(squares / norm.width + norm.eps);
  if (lane == 0) {
    if (kLayerNorm) norm.mean[row] = mean;
    norm.rstd[row] = rstd;
  }
  const T *weight = static_cast<const T*>(norm.weight), *bias = static_cast<const T*>(norm.bias);
  T* out = static_cast<T*>(norm.out) + start;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int column = (lane + k * kThreads) * kVector;
    if (column >= norm.width) continue;
    float w[kVector], result[kVector];
    load(weight + column, w);
    if constexpr (kLayerNorm) {
      float b[kVector];
      load(bias + column, b);
#pragma unroll
      for (int j = 0; j < kVector; ++j) result[j] = (values[k][j] - mean) * rstd * w[j] + b[j];
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) result[j] = rounded<T>(values[k][j] * rstd) * w[j];
    }
    store(out + column, result);
  }
}

// Every block goes through its share of the rows and adds up what they give to the gradients of
// weight and bias; the sums of the blocks are added in a second launch, always in the same order.
// The threads of a block of backward_rows with `threads` for a row.
__host__ __device__ constexpr int backward_block(int threads) {
  return threads == kWarp ? kBlock : threads;
}

template <typename T, bool kLayerNorm, int kThreads, int kVectors>
__global__ void __launch_bounds__(backward_block(kThreads)) backward_rows(NormBackward norm) {
  constexpr int kGroups = backward_block(kThreads) / kThreads;
  __shared__ float scratch[2 * backward_block(kThreads) / kWarp];
  extern __shared__ __align__(16) float shared[];  // (width), for several groups
  const int lane = threadIdx.x % kThreads, group = threadIdx.x / kThreads;
  const T *weight = static_cast<const T*>(norm.weight),
          *grad_sum = static_cast<const T*>(norm.grad_sum);
  float to_weight[kVectors][kVector] = {}, to_bias[kVectors][kVector] = {};

  for (int64_t row = int64_t(blockIdx.x) * kGroups + group; row < norm.rows;
       row += int64_t(gridDim.x) * kGroups) {
    const int64_t start = row * norm.width;
    const T *grad_out = static_cast<const T*>(norm.grad_out) + start,
            *sum = static_cast<const T*>(norm.sum) + start;
    T* grad_x = static_cast<T*>(norm.grad_x) + start;
    const float mean = kLayerNorm ? norm.mean[row] : 0.0f, rstd = norm.rstd[row];
    float grads[kVectors][kVector], normed[kVectors][kVector];
    float first = 0.0f, second = 0.0f;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int column = (lane + k * kThreads) * kVector;
      if (column < norm.width) {
        float w[kVector];
        load(grad_out + column, grads[k]);
        load(sum + column, normed[k]);
        load(weight + column, w);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          normed[k][j] = (normed[k][j] - mean) * rstd;
          to_weight[k][j] += grads[k][j] * normed[k][j];
          if (kLayerNorm) to_bias[k][j] += grads[k][j];
          grads[k][j] *= w[j];
          first += grads[k][j];
          second += grads[k][j] * normed[k][j];
        }
      }
    }
    group_sum<kThreads>(first, second, scratch);
    first = kLayerNorm ? first / norm.width : 0.0f;
    second /= norm.width;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int column = (lane + k * kThreads) * kVector;
      if (column >= norm.width) continue;
      float further[kVector] = {}, result[kVector];
      if (grad_sum != nullptr) load(grad_sum + start + column, further);
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        result[j] = (grads[k][j] - first - normed[k][j] * second) * rstd + further[j];
      store(grad_x + column, result);
    }
  }

#pragma unroll
  for (int which = 0; which < (kLayerNorm ? 2 : 1); ++which) {
    float* partial = norm.partial + (int64_t(which) * gridDim.x + blockIdx.x) * norm.width;
    if constexpr (kGroups == 1) {
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        const int column = (lane + k * kThreads) * kVector;
        if (column < norm.width) store(partial + column, which == 0 ? to_weight[k] : to_bias[k]);
      }
    } else {
      for (int turn = 0; turn < kGroups; ++turn) {
        if (turn == group) {
#pragma unroll
          for (int k = 0; k < kVectors; ++k) {
            const int column = (lane + k * kThreads) * kVector;
            if (column >= norm.width) continue;
            float so_far[kVector] = {};
            if (turn > 0) load(shared + column, so_far);
#pragma unroll
            for (int j = 0; j < kVector; ++j)
              so_far[j] += which == 0 ? to_weight[k][j] : to_bias[k][j];
            store(shared + column, so_far);
          }
        }
        __syncthreads();
      }
      for (int column = threadIdx.x; column < norm.width; column += backward_block(kThreads))
        partial[column] = shared[column];
      __syncthreads();
    }
  }
}

constexpr int kColumns = 32, kSlices = 32;

// (blocks, width) partial sums -> (width); blockIdx.y chooses weight or bias.
template <typename T>
__global__ void __launch_bounds__(kColumns* kSlices)
    add_partial(const float* partial, T* grad_weight, T* grad_bias, int blocks, int width) {
  __shared__ float sums[kSlices][kColumns];
  const int column = blockIdx.x * kColumns + threadIdx.x % kColumns, slice = threadIdx.x / kColumns;
  const float* mine = partial + int64_t(blockIdx.y) * blocks * width;
  float sum = 0.0f;
  if (column < width) {
#pragma unroll 4
    for (int row = slice; row < blocks; row += kSlices) sum += mine[int64_t(row) * width + column];
  }
  sums[slice][threadIdx.x % kColumns] = sum;
  __syncthreads();
  if (slice != 0 || column >= width) return;
  for (int i = 1; i < kSlices; ++i) sum += sums[i][threadIdx.x];
  (blockIdx.y == 0 ? grad_weight : grad_bias)[column] = Traits<T>::narrow(sum);
}

// Eight rows of columns sums at a time, as above but for any matrix: the gradient of a bias.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    column_parts(const T* x, float* partial, int64_t rows, int64_t width) {
  const int64_t column = (int64_t(blockIdx.x) * kWarp + threadIdx.x % kWarp) * kVector;
  const int slice = threadIdx.x / kWarp;
  constexpr int kRowSlices = kBlock / kWarp;
  __shared__ float sums[kRowSlices][kWarp][kVector + 1];
  float sum[kVector] = {};
  if (column < width) {
#pragma unroll 4
    for (int64_t row = int64_t(blockIdx.y) * kRowSlices + slice; row < rows;
         row += int64_t(gridDim.y) * kRowSlices) {
      float values[kVector];
      load(x + row * width + column, values);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] += values[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) sums[slice][threadIdx.x % kWarp][j] = sum[j];
  __syncthreads();
  if (slice != 0 || column >= width) return;
  for (int i = 1; i < kRowSlices; ++i)
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += sums[i][threadIdx.x][j];
  store(partial + blockIdx.y * width + column, sum);
}

int64_t column_blocks(int64_t rows, int64_t width) {
  const auto across = divided_up(width, kWarp * kVector);
  return std::max<int64_t>(1,
                           std::min(divided_up(rows, 64), 4 * int64_t(multiprocessors()) / across));
}

bool is_narrow(int width) { return width <= 4 * kWarp * kVector; }

// The backward pass keeps four numbers per element and its sums in registers: few elements per
// thread, or too few rows are under way.
int backward_threads(int width) {
  int threads = 4 * kWarp;
  while (threads * kVector < width) threads *= 2;
  return width <= 2 * kWarp * kVector ? kWarp : threads;
}

int backward_blocks(int64_t rows, int width) {
  const int threads = backward_threads(width), block = backward_block(threads);
  const int64_t wanted = divided_up(rows, block / threads),
                per_processor = std::max(2, 1024 / block);
  return int(std::max<int64_t>(1, std::min<int64_t>(wanted, multiprocessors() * per_processor)));
}

// Calls run(threads, vectors) with the shape of the backward pass, as compile-time constants.
template <typename Run>
void with_backward_shape(int width, const Run& run) {
  constexpr std::integral_constant<int, 1> one;
  switch (backward_threads(width)) {
    case kWarp:
      if (width <= kWarp * kVector)
        run(std::integral_constant<int, kWarp>(), one);
      else
        run(std::integral_constant<int, kWarp>(), std::integral_constant<int, 2>());
      break;
    case 128: run(std::integral_constant<int, 128>(), one); break;
    case 256: run(std::integral_constant<int, 256>(), one); break;
    case 512: run(std::integral_constant<int, 512>(), one); break;
    default: run(std::integral_constant<int, 1024>(), one); break;
  }
}

// Calls run(threads, vectors) with the smallest shape that holds a row, as compile-time constants.
template <typename Run>
void with_shape(int width, const Run& run) {
  const auto pick = [&](auto threads) {
    switch (divided_up(width, threads() * kVector)) {
      case 0:
      case 1: run(threads, std::integral_constant<int, 1>()); break;
      case 2: run(threads, std::integral_constant<int, 2>()); break;
      case 3: run(threads, std::integral_constant<int, 3>()); break;
      default: run(threads, std::integral_constant<int, 4>()); break;
    }
  };
  is_narrow(width) ? pick(std::integral_constant<int, kWarp>())
                   : pick(std::integral_constant<int, kBlock>());
}

}  // namespace

cudaError_t norm_forward(const NormForward& norm, cudaStream_t stream) {
  if (norm.rows == 0) return cudaSuccess;
  return with_type(norm.type, [&](auto element) {
    using T = decltype(element);
    with_shape(norm.width, [&](auto threads, auto vectors) {
      const auto blocks = unsigned(divided_up(norm.rows, kBlock / threads()));
      if (norm.mean != nullptr)
        forward_rows<T, true, threads(), vectors()><<<blocks, kBlock, 0, stream>>>(norm);
      else
        forward_rows<T, false, threads(), vectors()><<<blocks, kBlock, 0, stream>>>(norm);
    });
  });
}

int64_t norm_backward_scratch(int64_t rows, int width, bool layer_norm) {
  return int64_t(backward_blocks(rows, width)) * width * (layer_norm ? 2 : 1);
}

cudaError_t norm_backward(const NormBackward& norm, cudaStream_t stream) {
  const int blocks = backward_blocks(norm.rows, norm.width);
  return with_type(norm.type, [&](auto element) {
    using T = decltype(element);
    const bool layer_norm = norm.mean != nullptr;
    with_backward_shape(norm.width, [&](auto threads, auto vectors) {
      constexpr int block = backward_block(threads());
      const size_t shared = threads() == kWarp ? sizeof(float) * norm.width : 0;
      if (layer_norm)
        backward_rows<T, true, threads(), vectors()><<<blocks, block, shared, stream>>>(norm);
      else
        backward_rows<T, false, threads(), vectors()><<<blocks, block, shared, stream>>>(norm);
    });
    const dim3 grid(unsigned(divided_up(norm.width, kColumns)), layer_norm ? 2 : 1);
    add_partial<T><<<grid, kColumns * kSlices, 0, stream>>>(
        norm.partial, static_cast<T*>(norm.grad_weight), static_cast<T*>(norm.grad_bias), blocks,
        norm.width);
  });
}

int64_t column_sum_scratch(int64_t rows, int64_t width) {
  return column_blocks(rows, width) * width;
}

cudaError_t column_sum(Element type, const void* x, void* out, float* partial, int64_t rows,
                       int64_t width, cudaStream_t stream) {
  const auto blocks = column_blocks(rows, width);
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    const dim3 grid(unsigned(divided_up(width, kWarp * kVector)), unsigned(blocks));
    column_parts<T><<<grid, kBlock, 0, stream>>>(static_cast<const T*>(x), partial, rows, width);
    add_partial<T>
        <<<dim3(unsigned(divided_up(width, kColumns)), 1), kColumns * kSlices, 0, stream>>>(
            partial, static_cast<T*>(out), nullptr, int(blocks), int(width));
  });
}

}  // namespace gradus::cuda
