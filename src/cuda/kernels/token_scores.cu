#include <algorithm>

#include "cuda/kernels/vector.cuh"

namespace gradus::cuda {
namespace {

constexpr float kLeast = -3.0e38f;
constexpr int kNowhere = 0x7fffffff;

// What is known of a row's softmax: with m the maximum, the sums of exp(l - m), of
// exp(l - m) · (l - m), of exp(2 (l - m)) and of l itself, and where the maximum is.
struct RowSums {
  float maximum, sum, weighted, squares, total;
  int place;

  static __device__ __forceinline__ RowSums nothing() {
    return {kLeast, 0.0f, 0.0f, 0.0f, 0.0f, kNowhere};
  }
  __device__ __forceinline__ void raise(float higher) {
    const float shift = maximum - higher, factor = __expf(shift);
    weighted = factor * (weighted + (sum > 0.0f ? shift * sum : 0.0f));
    sum *= factor;
    squares *= factor * factor;
    maximum = higher;
  }
  __device__ __forceinline__ void add(float value) {
    const float distance = value - maximum, share = __expf(distance);
    sum += share;
    weighted += share * distance;
    squares += share * share;
    total += value;
  }
};

__device__ __forceinline__ int warp_least(int value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = min(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// The sums of all threads of the block, for all of them.
__device__ __forceinline__ RowSums block_sums(RowSums own, RowSums* of_warps) {
  const float highest = warp_max(own.maximum);
  const int place = warp_least(own.maximum == highest ? own.place : kNowhere);
  own.raise(highest);
  own.place = place;
  own.sum = warp_sum(own.sum);
  own.weighted = warp_sum(own.weighted);
  own.squares = warp_sum(own.squares);
  own.total = warp_sum(own.total);
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  if (threadIdx.x % kWarp == 0) of_warps[warp] = own;
  __syncthreads();
  RowSums all = RowSums::nothing();
  for (int i = 0; i < warps; ++i) all.maximum = fmaxf(all.maximum, of_warps[i].maximum);
  for (int i = 0; i < warps; ++i) {
    RowSums part = of_warps[i];
    if (part.maximum == all.maximum) all.place = min(all.place, part.place);
    part.raise(all.maximum);
    all.sum += part.sum;
    all.weighted += part.weighted;
    all.squares += part.squares;
    all.total += part.total;
  }
  return all;
}

// One block a row. The first reading gives the sums, the second, mostly from the cache, writes the
// gradient over the logits.
template <typename T>
__global__ void token_scores_row(TokenScores work) {
  __shared__ RowSums of_warps[kWarp];
  const int64_t row = blockIdx.x, label = work.labels[row];
  T* logits = static_cast<T*>(work.logits) + row * work.columns;
  float* scores = work.scores + row * kTokenScores;
  const int columns = int(work.columns), classes = int(work.classes), step = blockDim.x * kVector;
  if (label == work.ignore_index) {
    if (threadIdx.x < kTokenScores) scores[threadIdx.x] = 0.0f;
    if (work.factors == nullptr) return;
    const float zeros[kVector] = {};
    for (int column = threadIdx.x * kVector; column < columns; column += step)
      store(logits + column, zeros);
    return;
  }

  RowSums sums = RowSums::nothing();
  for (int column = threadIdx.x * kVector; column < columns; column += step) {
    float values[kVector];
    load(logits + column, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] *= work.factor;
    float highest = sums.maximum;
    int place = sums.place;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (column + j < classes && values[j] > highest) {
        highest = values[j];
        place = column + j;
      }
    }
    if (highest > sums.maximum) sums.raise(highest);
    sums.place = place;
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      if (column + j < classes) sums.add(values[j]);
  }
  sums = block_sums(sums, of_warps);
  const bool known = label >= 0 && label < work.classes;
  const float log_sum = logf(sums.sum), entropy = log_sum - sums.weighted / sums.sum;
  const float log_prob =
      known ? Traits<T>::widen(logits[label]) * work.factor - sums.maximum - log_sum : NAN;
  if (threadIdx.x == 0) {
    scores[0] = log_prob;
    scores[1] = entropy;
    scores[2] = sums.total / float(work.classes);
    scores[3] = sums.place == label ? 1.0f : 0.0f;
    scores[4] = logf(sums.squares) - 2.0f * log_sum;
  }
  if (work.factors == nullptr) return;
  __syncthreads();  // the label's logit has been read

  float scale = known ? work.factors[row] * work.factor : NAN;
  if (work.weighted) scale *= __expf(log_prob);
  const float to_entropy =
      work.entropy_factors == nullptr ? 0.0f : work.entropy_factors[row] * work.factor;
  for (int column = threadIdx.x * kVector; column < columns; column += step) {
    float values[kVector];
    load(logits + column, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float log_share = values[j] * work.factor - sums.maximum - log_sum;
      const float share = column + j < classes ? __expf(log_share) : 0.0f;
      values[j] = -share * scale;
      if (to_entropy != 0.0f && share > 0.0f)
        values[j] -= to_entropy * share * (log_share + entropy);
      if (column + j == label) values[j] += scale;
    }
    store(logits + column, values);
  }
}

}  // namespace

cudaError_t token_scores(const TokenScores& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const int64_t wanted = divided_up(divided_up(work.columns, kVector), kWarp) * kWarp;
  const auto threads = unsigned(std::min<int64_t>(wanted, 1024));
  return with_type(work.type, [&](auto element) {
    token_scores_row<decltype(element)><<<unsigned(work.rows), threads, 0, stream>>>(work);
  });
}

}  // namespace gradus::cuda
