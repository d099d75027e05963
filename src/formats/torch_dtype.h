#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace gradus {

/// How torch's files name a number type.
struct TorchDtype {
  c10::ScalarType type;
  std::string_view name;     ///< "float32", as in torch.float32
  std::string_view storage;  ///< "FloatStorage"; empty for the newer types, which have none
};

/// Null when the type is not one that a file of ours may hold.
const TorchDtype* torch_dtype(c10::ScalarType type);
const TorchDtype* torch_dtype_by_name(std::string_view name);
const TorchDtype* torch_dtype_by_storage(std::string_view storage);

/// The type of numpy's "u4", "f8" … .
std::optional<c10::ScalarType> numpy_dtype(std::string_view code);

}  // namespace gradus
