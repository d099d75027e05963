#pragma once

#include <torch/types.h>
#include <nlohmann/json.hpp>

namespace gradus::testing {

/// The tensor that nested lists of numbers of equal lengths are; a number alone gives a tensor
/// without dimensions.
inline torch::Tensor tensor_of(const nlohmann::json& value, torch::ScalarType dtype) {
  std::vector<int64_t> sizes;
  for (const auto* level = &value; level->is_array(); level = &level->front())
    sizes.push_back(int64_t(level->size()));
  std::vector<double> flat;
  const std::function<void(const nlohmann::json&)> collect = [&](const nlohmann::json& each) {
    if (each.is_array())
      for (const auto& child : each) collect(child);
    else
      flat.push_back(each.get<double>());
  };
  collect(value);
  return torch::tensor(flat, torch::kDouble).reshape(sizes).to(dtype);
}

}  // namespace gradus::testing
