#include "kernels/logit_chunks.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace gradus::kernels {

using torch::Tensor;

namespace {

constexpr int64_t kMostRows = 4096;  // of one chunk: enough to fill the device
constexpr int64_t kClassPadding = 64;
constexpr int64_t kRowPadding = 128;

int64_t padded_to(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t padded_classes(int64_t classes) { return padded_to(classes, kClassPadding); }

int64_t rows_per_chunk(int64_t rows, int64_t columns, int64_t most_logits) {
  const auto most = std::clamp(most_logits / columns, kRowPadding, kMostRows);
  const auto chunks = std::max<int64_t>((rows + most - 1) / most, 1);
  return std::max(padded_to((rows + chunks - 1) / chunks, kRowPadding), kRowPadding);
}

Tensor padded_rows(const Tensor& x, int64_t padded) {
  if (x.size(0) == padded) return x.contiguous();
  auto sizes = x.sizes().vec();
  sizes[0] = padded;
  auto wider = at::empty(sizes, x.options());
  wider.narrow(0, 0, x.size(0)).copy_(x);
  wider.narrow(0, x.size(0), padded - x.size(0)).zero_();
  return wider;
}

}  // namespace gradus::kernels
