#pragma once

#include <torch/types.h>

#include <cstring>

namespace gradus::data {

/// Whether the bytes of `tensor` can be copied as they lie in memory.
inline bool is_plain(const torch::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor.is_conj() && !tensor.requires_grad();
}

/// `memcpy` with a fixed size for the common row of one number.
inline void copy_row(void* to, const void* from, size_t bytes) {
  if (bytes == 8)
    std::memcpy(to, from, 8);
  else if (bytes == 4)
    std::memcpy(to, from, 4);
  else if (bytes > 0)
    std::memcpy(to, from, bytes);
}

}  // namespace gradus::data
