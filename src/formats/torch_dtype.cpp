#include "formats/torch_dtype.h"

#include <array>
#include <utility>

namespace gradus {
namespace {

using c10::ScalarType;

constexpr std::array kTypes = {
    TorchDtype{ScalarType::Float, "float32", "FloatStorage"},
    TorchDtype{ScalarType::Double, "float64", "DoubleStorage"},
    TorchDtype{ScalarType::Half, "float16", "HalfStorage"},
    TorchDtype{ScalarType::BFloat16, "bfloat16", "BFloat16Storage"},
    TorchDtype{ScalarType::Long, "int64", "LongStorage"},
    TorchDtype{ScalarType::Int, "int32", "IntStorage"},
    TorchDtype{ScalarType::Short, "int16", "ShortStorage"},
    TorchDtype{ScalarType::Char, "int8", "CharStorage"},
    TorchDtype{ScalarType::Byte, "uint8", "ByteStorage"},
    TorchDtype{ScalarType::Bool, "bool", "BoolStorage"},
    TorchDtype{ScalarType::ComplexFloat, "complex64", "ComplexFloatStorage"},
    TorchDtype{ScalarType::ComplexDouble, "complex128", "ComplexDoubleStorage"},
    TorchDtype{ScalarType::UInt16, "uint16", ""},
    TorchDtype{ScalarType::UInt32, "uint32", ""},
    TorchDtype{ScalarType::UInt64, "uint64", ""},
    TorchDtype{ScalarType::Float8_e4m3fn, "float8_e4m3fn", ""},
    TorchDtype{ScalarType::Float8_e5m2, "float8_e5m2", ""},
    TorchDtype{ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz", ""},
    TorchDtype{ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz", ""},
    TorchDtype{ScalarType::Float8_e8m0fnu, "float8_e8m0fnu", ""},
    TorchDtype{ScalarType::ComplexHalf, "complex32", ""},
};

constexpr std::array<std::pair<std::string_view, ScalarType>, 13> kNumpy = {{
    {"b1", ScalarType::Bool},
    {"u1", ScalarType::Byte},
    {"u2", ScalarType::UInt16},
    {"u4", ScalarType::UInt32},
    {"u8", ScalarType::UInt64},
    {"i1", ScalarType::Char},
    {"i2", ScalarType::Short},
    {"i4", ScalarType::Int},
    {"i8", ScalarType::Long},
    {"f2", ScalarType::Half},
    {"f4", ScalarType::Float},
    {"f8", ScalarType::Double},
    {"c8", ScalarType::ComplexFloat},
}};

template <typename Match>
const TorchDtype* find(Match match) {
  for (const auto& row : kTypes)
    if (match(row)) return &row;
  return nullptr;
}

}  // namespace

const TorchDtype* torch_dtype(ScalarType type) {
  return find([&](const TorchDtype& row) { return row.type == type; });
}

const TorchDtype* torch_dtype_by_name(std::string_view name) {
  return find([&](const TorchDtype& row) { return row.name == name; });
}

const TorchDtype* torch_dtype_by_storage(std::string_view storage) {
  if (storage.empty()) return nullptr;
  return find([&](const TorchDtype& row) { return row.storage == storage; });
}

std::optional<ScalarType> numpy_dtype(std::string_view code) {
  for (const auto& [name, type] : kNumpy)
    if (name == code) return type;
  return std::nullopt;
}

}  // namespace gradus
