#include "formats/safetensors_dtype.h"

#include <array>

namespace gradus {
namespace {

constexpr std::array kDtypes = {
    SafetensorsDtype{"U64", c10::ScalarType::UInt64},
    SafetensorsDtype{"I64", c10::ScalarType::Long},
    SafetensorsDtype{"F64", c10::ScalarType::Double},
    SafetensorsDtype{"C64", c10::ScalarType::ComplexFloat},
    SafetensorsDtype{"F32", c10::ScalarType::Float},
    SafetensorsDtype{"U32", c10::ScalarType::UInt32},
    SafetensorsDtype{"I32", c10::ScalarType::Int},
    SafetensorsDtype{"BF16", c10::ScalarType::BFloat16},
    SafetensorsDtype{"F16", c10::ScalarType::Half},
    SafetensorsDtype{"U16", c10::ScalarType::UInt16},
    SafetensorsDtype{"I16", c10::ScalarType::Short},
    SafetensorsDtype{"F8_E5M2FNUZ", c10::ScalarType::Float8_e5m2fnuz},
    SafetensorsDtype{"F8_E4M3FNUZ", c10::ScalarType::Float8_e4m3fnuz},
    SafetensorsDtype{"F8_E8M0", c10::ScalarType::Float8_e8m0fnu},
    SafetensorsDtype{"F8_E4M3", c10::ScalarType::Float8_e4m3fn},
    SafetensorsDtype{"F8_E5M2", c10::ScalarType::Float8_e5m2},
    SafetensorsDtype{"I8", c10::ScalarType::Char},
    SafetensorsDtype{"U8", c10::ScalarType::Byte},
    SafetensorsDtype{"BOOL", c10::ScalarType::Bool},
};

}  // namespace

std::span<const SafetensorsDtype> safetensors_dtypes() { return kDtypes; }

const SafetensorsDtype* find_safetensors_dtype(std::string_view name) {
  for (const auto& row : kDtypes)
    if (row.name == name) return &row;
  return nullptr;
}

const SafetensorsDtype* find_safetensors_dtype(c10::ScalarType type) {
  for (const auto& row : kDtypes)
    if (row.type == type) return &row;
  return nullptr;
}

}  // namespace gradus
