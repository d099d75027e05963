#include "cuda/kernels/vector.cuh"

namespace gradus::cuda {
namespace {

constexpr int kBlock = 256;

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

template <typename T>
__global__ void __launch_bounds__(kBlock)
    swiglu_forward_vectors(const T* gate, const T* up, T* out, int64_t vectors) {
  const int64_t i = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= vectors) return;
  float g[kVector], u[kVector];
  load(gate + i * kVector, g);
  load(up + i * kVector, u);
#pragma unroll
  for (int j = 0; j < kVector; ++j) u[j] *= g[j] * sigmoid(g[j]);
  store(out + i * kVector, u);
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    swiglu_backward_vectors(const T* grad, const T* gate, const T* up, T* grad_gate, T* grad_up,
                            T* product, int64_t vectors) {
  const int64_t i = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= vectors) return;
  float d[kVector], g[kVector], u[kVector], to_gate[kVector], to_up[kVector], both[kVector];
  load(grad + i * kVector, d);
  load(gate + i * kVector, g);
  load(up + i * kVector, u);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float share = sigmoid(g[j]), silu = g[j] * share;
    to_gate[j] = d[j] * u[j] * share * (1.0f + g[j] * (1.0f - share));
    to_up[j] = d[j] * silu;
    both[j] = silu * u[j];
  }
  store(grad_gate + i * kVector, to_gate);
  store(grad_up + i * kVector, to_up);
  if (product != nullptr) store(product + i * kVector, both);
}

// One thread turns eight pairs of one head of one token, or copies eight channels that are not
// turned.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    rotate_vectors(Rotary work, int pairs, int per_head, int64_t items) {
  const int64_t item = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int part = int(item % per_head);
  const int64_t rest = item / per_head;
  const int heads = work.query.heads + work.key.heads;
  const int64_t place = rest / heads, batch = place / work.tokens, token = place % work.tokens;
  int head = int(rest % heads);
  const bool is_query = head < work.query.heads;
  const RotaryTensor& tensor = is_query ? work.query : work.key;
  if (!is_query) head -= work.query.heads;
  const T* in = static_cast<const T*>(tensor.in) + batch * tensor.batch_stride +
                token * tensor.token_stride + head * tensor.head_stride;
  T* out = static_cast<T*>(tensor.out) + (place * tensor.heads + head) * work.width;
  if (part >= pairs) {
    const int channel = work.rotated + (part - pairs) * kVector;
    float same[kVector];
    load(in + channel, same);
    store(out + channel, same);
    return;
  }
  const int half = work.rotated / 2, channel = part * kVector;
  const int64_t angle = ((work.angle_rows == 1 ? 0 : batch) * work.tokens + token) * half + channel;
  float a[kVector], b[kVector], cos[kVector], sin[kVector], first[kVector], second[kVector];
  load(in + channel, a);
  load(in + half + channel, b);
  load(work.cos + angle, cos);
  load(work.sin + angle, sin);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float turn = sin[j] * work.direction;
    first[j] = a[j] * cos[j] - b[j] * turn;
    second[j] = b[j] * cos[j] + a[j] * turn;
  }
  store(out + channel, first);
  store(out + half + channel, second);
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    pack_vectors(PackHeads work, int per_head, int64_t items) {
  const int64_t item = int64_t(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int channel = int(item % per_head) * kVector;
  const int64_t rest = item / per_head;
  const int head = int(rest % work.heads);
  const int64_t above = rest / work.heads, place = above / 3;
  const int which = int(above % 3);
  const int64_t batch = place / work.tokens, token = place % work.tokens;
  const T* in = static_cast<const T*>(which == 0   ? work.in[0]
                                      : which == 1 ? work.in[1]
                                                   : work.in[2]);
  const int64_t batch_stride = which == 0   ? work.batch_stride[0]
                               : which == 1 ? work.batch_stride[1]
                                            : work.batch_stride[2];
  const int64_t token_stride = which == 0   ? work.token_stride[0]
                               : which == 1 ? work.token_stride[1]
                                            : work.token_stride[2];
  const int64_t head_stride = which == 0   ? work.head_stride[0]
                              : which == 1 ? work.head_stride[1]
                                           : work.head_stride[2];
  float values[kVector];
  load(in + batch * batch_stride + token * token_stride + head * head_stride + channel, values);
  store(static_cast<T*>(work.out) + item * kVector, values);
}

}  // namespace

cudaError_t pack_heads(const PackHeads& work, cudaStream_t stream) {
  const int per_head = work.width / kVector;
  const int64_t items = work.batch * work.tokens * 3 * work.heads * per_head;
  if (items == 0) return cudaSuccess;
  return with_type(work.type, [&](auto element) {
    pack_vectors<decltype(element)>
        <<<unsigned(divided_up(items, kBlock)), kBlock, 0, stream>>>(work, per_head, items);
  });
}

cudaError_t swiglu_forward(Element type, const void* gate, const void* up, void* out, int64_t count,
                           cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int64_t vectors = count / kVector;
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    swiglu_forward_vectors<T><<<unsigned(divided_up(vectors, kBlock)), kBlock, 0, stream>>>(
        static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(out), vectors);
  });
}

cudaError_t swiglu_backward(Element type, const void* grad, const void* gate, const void* up,
                            void* grad_gate, void* grad_up, void* product, int64_t count,
                            cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int64_t vectors = count / kVector;
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    swiglu_backward_vectors<T><<<unsigned(divided_up(vectors, kBlock)), kBlock, 0, stream>>>(
        static_cast<const T*>(grad), static_cast<const T*>(gate), static_cast<const T*>(up),
        static_cast<T*>(grad_gate), static_cast<T*>(grad_up), static_cast<T*>(product), vectors);
  });
}

cudaError_t rotary(const Rotary& work, cudaStream_t stream) {
  const int pairs = work.rotated / 2 / kVector,
            per_head = pairs + (work.width - work.rotated) / kVector;
  const int64_t items = work.batch * work.tokens * (work.query.heads + work.key.heads) * per_head;
  if (items == 0) return cudaSuccess;
  return with_type(work.type, [&](auto element) {
    rotate_vectors<decltype(element)>
        <<<unsigned(divided_up(items, kBlock)), kBlock, 0, stream>>>(work, pairs, per_head, items);
  });
}

}  // namespace gradus::cuda
