#pragma once

#include <torch/types.h>

#include <vector>

namespace gradus {

/// The type an optimizer computes in for parameters of `type`: float32 for the half-precision
/// types.
inline at::ScalarType working_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

/// The tensors in their working type; those that are already are shared, not copied.
inline std::vector<torch::Tensor> in_working_precision(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors)
    result.push_back(tensor.to(working_type(tensor.scalar_type())));
  return result;
}

/// Writes working copies back to where they came from; shared ones need nothing.
inline void write_back(const std::vector<torch::Tensor>& working,
                       const std::vector<torch::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!working[i].is_same(tensors[i])) tensors[i].copy_(working[i]);
}

inline torch::Tensor zeros_like_param(const torch::Tensor& param, at::ScalarType type) {
  return torch::zeros_like(param, param.options().dtype(type).requires_grad(false),
                           at::MemoryFormat::Preserve);
}
inline torch::Tensor zeros_like_param(const torch::Tensor& param) {
  return zeros_like_param(param, param.scalar_type());
}

}  // namespace gradus
