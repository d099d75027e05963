#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

namespace gradus {

struct FlaxDtype {
  std::string_view name;  ///< numpy's and ml_dtypes' name
  at::ScalarType type;
};

inline constexpr std::array kFlaxDtypes = {
    FlaxDtype{"bool", at::kBool},
    FlaxDtype{"int8", at::kChar},
    FlaxDtype{"int16", at::kShort},
    FlaxDtype{"int32", at::kInt},
    FlaxDtype{"int64", at::kLong},
    FlaxDtype{"uint8", at::kByte},
    FlaxDtype{"uint16", at::kUInt16},
    FlaxDtype{"uint32", at::kUInt32},
    FlaxDtype{"uint64", at::kUInt64},
    FlaxDtype{"float16", at::kHalf},
    FlaxDtype{"bfloat16", at::kBFloat16},
    FlaxDtype{"float32", at::kFloat},
    FlaxDtype{"float64", at::kDouble},
    FlaxDtype{"complex64", at::kComplexFloat},
    FlaxDtype{"complex128", at::kComplexDouble},
    FlaxDtype{"float8_e4m3fn", at::kFloat8_e4m3fn},
    FlaxDtype{"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
    FlaxDtype{"float8_e5m2", at::kFloat8_e5m2},
    FlaxDtype{"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
    FlaxDtype{"float8_e8m0fnu", at::kFloat8_e8m0fnu},
};

/// Marks a dictionary that stands for an array in pieces.
inline constexpr std::string_view kFlaxChunked = "__msgpack_chunked_array__";

/// Flax's extension types of msgpack.
enum class FlaxExtension : int8_t { array = 1, complex = 2, numpy_scalar = 3 };

}  // namespace gradus
