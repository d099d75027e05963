#include <algorithm>

#include "cuda/kernels/vector.cuh"

// Many tensors in one launch. Their addresses and sizes go along as parameters of the kernel; a
// block finds its tensor by a binary search over the number of chunks before each. A graph that
// captured the launch has them too.
namespace gradus::cuda {
namespace {

constexpr int kBlock = 512;
constexpr int kChunk = 32768;  // elements of one block
constexpr int kMostChunks = 1 << 30;

struct Place {
  int tensor;
  int64_t start, end;
  bool vectors;  // in steps of eight
};

template <typename Table>
__device__ __forceinline__ Place place_of(const Table& table, int block) {
  int low = 0, high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first_chunk[middle] <= block)
      low = middle;
    else
      high = middle - 1;
  }
  const int64_t start = int64_t(block - table.first_chunk[low]) * kChunk, count = table.size[low];
  return {low, start, min(start + kChunk, count), table.aligned[low] != 0};
}

__device__ __forceinline__ void load_any(Element type, const void* from, int64_t at,
                                         float (&values)[kVector]) {
  if (type == Element::bfloat16)
    load(static_cast<const Bfloat*>(from) + at, values);
  else if (type == Element::float32)
    load(static_cast<const float*>(from) + at, values);
  else
    load(static_cast<const Half*>(from) + at, values);
}
__device__ __forceinline__ float load_one(Element type, const void* from, int64_t at) {
  if (type == Element::bfloat16) return Traits<Bfloat>::widen(static_cast<const Bfloat*>(from)[at]);
  if (type == Element::float32) return static_cast<const float*>(from)[at];
  return Traits<Half>::widen(static_cast<const Half*>(from)[at]);
}
__device__ __forceinline__ void store_any(Element type, void* to, int64_t at,
                                          const float (&values)[kVector]) {
  if (type == Element::bfloat16)
    store(static_cast<Bfloat*>(to) + at, values);
  else if (type == Element::float32)
    store(static_cast<float*>(to) + at, values);
  else
    store(static_cast<Half*>(to) + at, values);
}
__device__ __forceinline__ void store_one(Element type, void* to, int64_t at, float value) {
  if (type == Element::bfloat16)
    static_cast<Bfloat*>(to)[at] = Traits<Bfloat>::narrow(value);
  else if (type == Element::float32)
    static_cast<float*>(to)[at] = value;
  else
    static_cast<Half*>(to)[at] = Traits<Half>::narrow(value);
}

// --- AdamW -------------------------------------------------------------------

template <int kCapacity>
struct AdamWTable {
  float *master[kCapacity], *exp_avg[kCapacity], *exp_avg_sq[kCapacity];
  void* weight[kCapacity];
  const void* grad[kCapacity];
  int64_t size[kCapacity];
  int first_chunk[kCapacity];
  Element weight_type[kCapacity], grad_type[kCapacity];
  uint8_t aligned[kCapacity];
  int count;
};

struct AdamWNumbers {
  float beta1, beta2, rest1, rest2, eps, lr_decay, step_size, correction2, clip, grad_scale;
  bool scaled, maximize, decays;
};

__device__ __forceinline__ AdamWNumbers numbers_of(const AdamWStep& step) {
  AdamWNumbers n;
  const double lr = *step.lr, taken = *step.step;
  n.beta1 = float(step.beta1);
  n.beta2 = float(step.beta2);
  n.rest1 = float(1.0 - step.beta1);  // 1 - float(0.999) would be off in its fifth digit
  n.rest2 = float(1.0 - step.beta2);
  n.eps = step.eps;
  n.lr_decay = float(lr * double(step.weight_decay));
  n.step_size = float(lr / (1.0 - pow(step.beta1, taken)));
  n.correction2 = float(sqrt(1.0 - pow(step.beta2, taken)));
  n.clip = step.clip_coef == nullptr ? 1.0f : *step.clip_coef;
  n.scaled = step.grad_scale != nullptr;
  n.grad_scale = n.scaled ? *step.grad_scale : 1.0f;
  n.maximize = step.maximize;
  n.decays = step.weight_decay != 0.0f;
  return n;
}

__device__ __forceinline__ void adamw_element(float& param, float& average, float& square,
                                              float grad, const AdamWNumbers& n) {
  if (n.scaled) grad = grad / n.grad_scale;
  grad *= n.maximize ? -n.clip : n.clip;
  if (n.decays) param -= n.lr_decay * param;
  average = fmaf(n.beta1, average, n.rest1 * grad);
  square = fmaf(n.beta2, square, n.rest2 * (grad * grad));
  param -= n.step_size * average / (sqrtf(square) / n.correction2 + n.eps);
}

template <int kCapacity>
__global__ void __launch_bounds__(kBlock)
    adamw_chunks(const __grid_constant__ AdamWTable<kCapacity> table, const AdamWStep step) {
  if (step.found_inf != nullptr && *step.found_inf != 0.0f) return;
  __shared__ AdamWNumbers numbers;
  if (threadIdx.x == 0) numbers = numbers_of(step);
  __syncthreads();
  const AdamWNumbers n = numbers;
  const Place place = place_of(table, blockIdx.x);
  float *master = table.master[place.tensor], *average = table.exp_avg[place.tensor],
        *square = table.exp_avg_sq[place.tensor];
  void* weight = table.weight[place.tensor];
  const void* grad = table.grad[place.tensor];
  const Element weight_type = table.weight_type[place.tensor],
                grad_type = table.grad_type[place.tensor];
  const int64_t whole =
      place.vectors ? place.start + (place.end - place.start) / kVector * kVector : place.start;
  for (int64_t i = place.start + threadIdx.x * kVector; i < whole; i += kBlock * kVector) {
    float p[kVector], m[kVector], v[kVector], g[kVector];
    load_any(grad_type, grad, i, g);
    load(master + i, p);
    load(average + i, m);
    load(square + i, v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) adamw_element(p[j], m[j], v[j], g[j], n);
    store(master + i, p);
    store(average + i, m);
    store(square + i, v);
    if (weight != nullptr) store_any(weight_type, weight, i, p);
  }
  for (int64_t i = whole + threadIdx.x; i < place.end; i += kBlock) {
    adamw_element(master[i], average[i], square[i], load_one(grad_type, grad, i), n);
    if (weight != nullptr) store_one(weight_type, weight, i, master[i]);
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

template <int kCapacity>
cudaError_t launch_adamw(const AdamWTensor*& next, const AdamWTensor* end, const AdamWStep& step,
                         cudaStream_t stream) {
  AdamWTable<kCapacity> table;
  int64_t chunks = 0;
  int n = 0;
  for (; next != end && n < kCapacity && chunks < kMostChunks; ++next) {
    if (next->count == 0) continue;
    table.master[n] = next->master;
    table.exp_avg[n] = next->exp_avg;
    table.exp_avg_sq[n] = next->exp_avg_sq;
    table.weight[n] = next->weight;
    table.grad[n] = next->grad;
    table.size[n] = next->count;
    table.first_chunk[n] = int(chunks);
    table.weight_type[n] = next->weight_type;
    table.grad_type[n] = next->grad_type;
    table.aligned[n] = is_aligned(next->master) && is_aligned(next->exp_avg) &&
                       is_aligned(next->exp_avg_sq) && is_aligned(next->weight) &&
                       is_aligned(next->grad);
    chunks += divided_up(next->count, kChunk);
    ++n;
  }
  table.count = n;
  if (n > 0) adamw_chunks<kCapacity><<<unsigned(chunks), kBlock, 0, stream>>>(table, step);
  return cudaGetLastError();
}

// --- lists of one tensor each
// ------------------------------------------------------------------------------------------

template <int kCapacity>
struct ListTable {
  void* data[kCapacity];
  int64_t size[kCapacity];
  int first_chunk[kCapacity];
  Element type[kCapacity];
  uint8_t aligned[kCapacity];
  int count;
};

template <int kCapacity>
__global__ void __launch_bounds__(kBlock)
    square_chunks(const __grid_constant__ ListTable<kCapacity> table, float* partial) {
  __shared__ float scratch[2 * kBlock / kWarp];
  const Place place = place_of(table, blockIdx.x);
  const void* data = table.data[place.tensor];
  const Element type = table.type[place.tensor];
  const int64_t whole =
      place.vectors ? place.start + (place.end - place.start) / kVector * kVector : place.start;
  float sum = 0.0f, unused = 0.0f;
  for (int64_t i = place.start + threadIdx.x * kVector; i < whole; i += kBlock * kVector) {
    float values[kVector];
    load_any(type, data, i, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += values[j] * values[j];
  }
  for (int64_t i = whole + threadIdx.x; i < place.end; i += kBlock) {
    const float value = load_one(type, data, i);
    sum += value * value;
  }
  group_sum<kBlock>(sum, unused, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

constexpr int kLastBlock = 1024;

__global__ void __launch_bounds__(kLastBlock)
    norm_of_parts(const float* partial, int64_t count, float* result) {
  __shared__ double sums[kLastBlock];
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kLastBlock) sum += partial[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kLastBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *result = float(sqrt(sums[0]));
}

template <int kCapacity>
__global__ void __launch_bounds__(kBlock)
    scale_chunks(const __grid_constant__ ListTable<kCapacity> table, const float* factor) {
  const float times = *factor;
  if (times == 1.0f) return;
  const Place place = place_of(table, blockIdx.x);
  void* data = table.data[place.tensor];
  const Element type = table.type[place.tensor];
  const int64_t whole =
      place.vectors ? place.start + (place.end - place.start) / kVector * kVector : place.start;
  for (int64_t i = place.start + threadIdx.x * kVector; i < whole; i += kBlock * kVector) {
    float values[kVector];
    load_any(type, data, i, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] *= times;
    store_any(type, data, i, values);
  }
  for (int64_t i = whole + threadIdx.x; i < place.end; i += kBlock)
    store_one(type, data, i, load_one(type, data, i) * times);
}

// Fills a table from `next` on, which it moves past what fitted; gives the number of chunks.
template <int kCapacity>
int64_t fill_table(ListTable<kCapacity>& table, const ListTensor*& next, const ListTensor* end) {
  int64_t chunks = 0;
  int n = 0;
  for (; next != end && n < kCapacity && chunks < kMostChunks; ++next) {
    if (next->count == 0) continue;
    table.data[n] = next->data;
    table.size[n] = next->count;
    table.first_chunk[n] = int(chunks);
    table.type[n] = next->type;
    table.aligned[n] = is_aligned(next->data);
    chunks += divided_up(next->count, kChunk);
    ++n;
  }
  table.count = n;
  return chunks;
}

// Calls launch(table, chunks, chunks before) as often as the tensors need.
template <int kCapacity, typename Launch>
cudaError_t for_tables(const ListTensor* tensors, size_t count, const Launch& launch) {
  const auto* end = tensors + count;
  int64_t before = 0;
  for (const auto* next = tensors; next != end;) {
    ListTable<kCapacity> table;
    const auto chunks = fill_table(table, next, end);
    if (chunks > 0) launch(table, chunks, before);
    before += chunks;
    if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

constexpr int kFew = 64,
              kMany = 512;  // tensors a launch takes; parameters of a kernel may take 32,764 bytes
static_assert(sizeof(AdamWTable<kMany>) + sizeof(AdamWStep) < 32764 &&
              sizeof(ListTable<kMany>) + 64 < 32764);

}  // namespace

cudaError_t adamw(const AdamWTensor* tensors, size_t count, const AdamWStep& step,
                  cudaStream_t stream) {
  const auto* end = tensors + count;
  for (const auto* next = tensors; next != end;) {
    const auto error = end - next <= kFew ? launch_adamw<kFew>(next, end, step, stream)
                                          : launch_adamw<kMany>(next, end, step, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int64_t list_norm_scratch(const ListTensor* tensors, size_t count) {
  int64_t chunks = 0;
  for (size_t i = 0; i < count; ++i) chunks += divided_up(tensors[i].count, kChunk);
  return std::max<int64_t>(chunks, 1);
}

cudaError_t list_norm(const ListTensor* tensors, size_t count, float* partial, float* result,
                      cudaStream_t stream) {
  int64_t parts = 0;
  const auto launch = [&](const auto& table, int64_t chunks, int64_t before) {
    square_chunks<<<unsigned(chunks), kBlock, 0, stream>>>(table, partial + before);
    parts = before + chunks;
  };
  const auto error = count <= kFew ? for_tables<kFew>(tensors, count, launch)
                                   : for_tables<kMany>(tensors, count, launch);
  if (error != cudaSuccess) return error;
  norm_of_parts<<<1, kLastBlock, 0, stream>>>(partial, parts, result);
  return cudaGetLastError();
}

cudaError_t list_scale(const ListTensor* tensors, size_t count, const float* factor,
                       cudaStream_t stream) {
  const auto launch = [&](const auto& table, int64_t chunks, int64_t) {
    scale_chunks<<<unsigned(chunks), kBlock, 0, stream>>>(table, factor);
  };
  return count <= kFew ? for_tables<kFew>(tensors, count, launch)
                       : for_tables<kMany>(tensors, count, launch);
}

}  // namespace gradus::cuda
