#include <algorithm>

#include "cuda/kernels/vector.cuh"

namespace gradus::cuda {
namespace {

constexpr float kLowest = -3.0e38f;

// The maximum and the sum of exponentials over it, for the whole block.
__device__ __forceinline__ void block_softmax(float& maximum, float& sum, float* maxima,
                                              float* sums) {
  const float of_warp = warp_max(maximum);
  sum = warp_sum(sum * __expf(maximum - of_warp));
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  if (threadIdx.x % kWarp == 0) {
    maxima[warp] = of_warp;
    sums[warp] = sum;
  }
  __syncthreads();
  maximum = kLowest;
  for (int i = 0; i < warps; ++i) maximum = fmaxf(maximum, maxima[i]);
  sum = 0.0f;
  for (int i = 0; i < warps; ++i) sum += sums[i] * __expf(maxima[i] - maximum);
}

// One block a row. The first reading gives the softmax's normaliser, the second, mostly from the
// cache, writes the gradient over it.
template <typename T>
__global__ void cross_entropy_row(CrossEntropy work) {
  __shared__ float maxima[kWarp], sums[kWarp];
  const int64_t row = blockIdx.x, label = work.labels[row];
  T* logits = static_cast<T*>(work.logits) + row * work.columns;
  const int columns = int(work.columns), classes = int(work.classes), step = blockDim.x * kVector;
  if (label == work.ignore_index) {
    if (threadIdx.x == 0) work.losses[row] = 0.0f;
    if (!work.gradient) return;
    const float zeros[kVector] = {};
    for (int column = threadIdx.x * kVector; column < columns; column += step)
      store(logits + column, zeros);
    return;
  }

  float maximum = kLowest, sum = 0.0f;
  for (int column = threadIdx.x * kVector; column < columns; column += step) {
    float values[kVector];
    load(logits + column, values);
    float highest = kLowest;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (column + j >= classes) values[j] = -INFINITY;
      highest = fmaxf(highest, values[j]);
    }
    if (highest > maximum) {
      sum *= __expf(maximum - highest);
      maximum = highest;
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += __expf(values[j] - maximum);
  }
  block_softmax(maximum, sum, maxima, sums);
  const bool known = label >= 0 && label < work.classes;
  if (threadIdx.x == 0)
    work.losses[row] = known ? logf(sum) + maximum - Traits<T>::widen(logits[label]) : NAN;
  if (!work.gradient) return;
  __syncthreads();  // the label's logit has been read

  const float scale = known ? *work.scale : NAN, share = scale / sum;
  for (int column = threadIdx.x * kVector; column < columns; column += step) {
    float values[kVector];
    load(logits + column, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      values[j] = column + j < classes ? __expf(values[j] - maximum) * share : 0.0f;
      if (column + j == label) values[j] -= scale;
    }
    store(logits + column, values);
  }
}

}  // namespace

cudaError_t cross_entropy(const CrossEntropy& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const int64_t wanted = divided_up(divided_up(work.columns, kVector), kWarp) * kWarp;
  const auto threads = unsigned(std::min<int64_t>(wanted, 1024));
  return with_type(work.type, [&](auto element) {
    cross_entropy_row<decltype(element)><<<unsigned(work.rows), threads, 0, stream>>>(work);
  });
}

}  // namespace gradus::cuda
