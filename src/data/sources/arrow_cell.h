#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/array/array_base.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/type_fwd.h>
#include <gradus/data/table_dataset.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradus::sources {

/// Throws G-SRC-8 with Arrow's words when `status` is a failure.
void check_arrow(const arrow::Status& status, const std::filesystem::path& file);

template <class T>
T take(arrow::Result<T> result, const std::filesystem::path& file) {
  check_arrow(result.status(), file);
  return std::move(result).ValueUnsafe();
}

/// How the bytes of a field are to be understood beyond their Arrow type; kept in the field's
/// metadata.
enum class CellCoding { plain, json, tensor };
inline constexpr const char* kCodingKey = "gradus.coding";
CellCoding coding_of(const arrow::Field& field);

/// What `read_cell` gives for a column of this type.
ColumnKind kind_of_type(const arrow::DataType& type);

/// Row `row` of a column. Offsets are checked against the data, so that a damaged file gives
/// G-SRC-8, not a crash.
Value read_cell(const arrow::Array& column, int64_t row);
/// The same as JSON, for cells inside structs and lists.
nlohmann::ordered_json read_json_cell(const arrow::Array& column, int64_t row);
/// A binary cell that holds a tensor (see arrow_writer.cpp).
Value read_tensor_cell(const arrow::Array& column, int64_t row);

/// A tensor as bytes: type, number of dimensions, dimensions, elements.
std::string pack_tensor(const torch::Tensor& tensor);

}  // namespace gradus::sources

#endif
