#pragma once

#include <c10/core/ScalarType.h>

#include <span>
#include <string_view>

namespace gradus {

/// A dtype that both safetensors and torch know.
struct SafetensorsDtype {
  std::string_view name;
  c10::ScalarType type;
};

/// In the order in which Python's writer puts them: tensors of an earlier row come first in a file.
std::span<const SafetensorsDtype> safetensors_dtypes();

/// Null when there is none.
const SafetensorsDtype* find_safetensors_dtype(std::string_view name);
const SafetensorsDtype* find_safetensors_dtype(c10::ScalarType type);

}  // namespace gradus
