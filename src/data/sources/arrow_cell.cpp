#include "data/sources/arrow_cell.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/format.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/ordered_members.h"
#include "core/parsed_json.h"
#include "data/sources/column_kind.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace {

using arrow::Array;
using arrow::Type;
using Json = nlohmann::ordered_json;

Error broken(const Array& column, const std::string& what) {
  return {"G-SRC-8", ErrorKind::data,
          fmt::format("a column of type {} is damaged: {}", column.type()->ToString(), what),
          "Fetch or write the data file again."};
}

template <class T>
const T& as(const Array& column) {
  return static_cast<const T&>(column);
}

template <class ArrayType>
std::string binary_cell(const Array& column, int64_t row) {
  const auto& cells = as<ArrayType>(column);
  const int64_t begin = cells.value_offset(row), end = cells.value_offset(row + 1);
  const auto* bytes = column.data()->buffers[2].get();
  const auto size = bytes != nullptr ? bytes->size() : 0;
  if (begin < 0 || end < begin || end > size)
    throw broken(column, fmt::format("row {} spans bytes {} to {} of {}", row, begin, end, size));
  if (begin == end) return {};
  return {reinterpret_cast<const char*>(bytes->data()) + begin, size_t(end - begin)};
}

std::string text_cell(const Array& column, int64_t row) {
  switch (column.type_id()) {
    case Type::STRING: return binary_cell<arrow::StringArray>(column, row);
    case Type::LARGE_STRING: return binary_cell<arrow::LargeStringArray>(column, row);
    case Type::BINARY: return binary_cell<arrow::BinaryArray>(column, row);
    case Type::LARGE_BINARY: return binary_cell<arrow::LargeBinaryArray>(column, row);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW: return std::string(as<arrow::BinaryViewArray>(column).GetView(row));
    case Type::FIXED_SIZE_BINARY:
      return std::string(as<arrow::FixedSizeBinaryArray>(column).GetView(row));
    default: {  // dates, times and the like, as Arrow writes them
      const auto scalar = column.GetScalar(row);
      if (!scalar.ok()) throw broken(column, scalar.status().message());
      return (*scalar)->ToString();
    }
  }
}

// Calls `use(first element, elements)` with the raw values when `column` is of a plain integer
// type.
template <class Use>
bool with_integers(const Array& column, Use use) {
  switch (column.type_id()) {
    case Type::INT8: use(as<arrow::Int8Array>(column).raw_values()); return true;
    case Type::INT16: use(as<arrow::Int16Array>(column).raw_values()); return true;
    case Type::INT32: use(as<arrow::Int32Array>(column).raw_values()); return true;
    case Type::INT64: use(as<arrow::Int64Array>(column).raw_values()); return true;
    case Type::UINT8: use(as<arrow::UInt8Array>(column).raw_values()); return true;
    case Type::UINT16: use(as<arrow::UInt16Array>(column).raw_values()); return true;
    case Type::UINT32: use(as<arrow::UInt32Array>(column).raw_values()); return true;
    case Type::UINT64: use(as<arrow::UInt64Array>(column).raw_values()); return true;
    default: return false;
  }
}

double half_to_double(uint16_t bits) {
  return double(float(c10::Half(bits, c10::Half::from_bits())));
}

// Too small for a double is 0, too large infinite.
double decimal(const Array& column, const std::string& digits) {
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  if (*end != '\0') throw broken(column, digits);  // a scale that Arrow cannot write
  return number;
}

double number_cell(const Array& column, int64_t row) {
  switch (column.type_id()) {
    case Type::HALF_FLOAT: return half_to_double(as<arrow::HalfFloatArray>(column).Value(row));
    case Type::FLOAT: return double(as<arrow::FloatArray>(column).Value(row));
    case Type::DOUBLE: return as<arrow::DoubleArray>(column).Value(row);
    case Type::DECIMAL32:
      return decimal(column, as<arrow::Decimal32Array>(column).FormatValue(row));
    case Type::DECIMAL64:
      return decimal(column, as<arrow::Decimal64Array>(column).FormatValue(row));
    case Type::DECIMAL128:
      return decimal(column, as<arrow::Decimal128Array>(column).FormatValue(row));
    default: return decimal(column, as<arrow::Decimal256Array>(column).FormatValue(row));
  }
}

int64_t integer_cell(const Array& column, int64_t row) {
  int64_t value = 0;
  with_integers(column, [&](const auto* values) { value = int64_t(values[row]); });
  return value;
}

struct Range {
  const Array* values;
  int64_t begin, end;
};

Range list_range(const Array& column, int64_t row) {
  Range range{};
  switch (column.type_id()) {
    case Type::LIST:
    case Type::MAP: {
      const auto& list = as<arrow::ListArray>(column);
      range = {list.values().get(), list.value_offset(row), list.value_offset(row + 1)};
      break;
    }
    case Type::LARGE_LIST: {
      const auto& list = as<arrow::LargeListArray>(column);
      range = {list.values().get(), list.value_offset(row), list.value_offset(row + 1)};
      break;
    }
    default: {
      const auto& list = as<arrow::FixedSizeListArray>(column);
      range = {list.values().get(), list.value_offset(row),
               list.value_offset(row) + list.value_length(row)};
    }
  }
  if (range.begin < 0 || range.end < range.begin || range.end > range.values->length())
    throw broken(column, fmt::format("row {} spans elements {} to {} of {}", row, range.begin,
                                     range.end, range.values->length()));
  return range;
}

bool has_nulls(const Range& range) {
  if (range.values->null_bitmap_data() == nullptr)
    return range.values->type_id() == Type::NA && range.end > range.begin;
  for (auto i = range.begin; i < range.end; ++i)
    if (range.values->IsNull(i)) return true;
  return false;
}

Json json_list(const Range& range) {
  auto list = Json::array();
  for (auto i = range.begin; i < range.end; ++i) list.push_back(read_json_cell(*range.values, i));
  return list;
}

Value list_cell(const Array& column, int64_t row) {
  const auto range = list_range(column, row);
  const auto count = size_t(range.end - range.begin);
  if (has_nulls(range)) return Value::nested(json_list(range));
  Value::Ints plain_ints;
  if (with_integers(*range.values, [&](const auto* values) {
        if (count > 0) plain_ints.assign(values + range.begin, values + range.end);
      }))
    return plain_ints;
  switch (kind_of_type(*column.type())) {
    case ColumnKind::nested: return Value::nested(json_list(range));
    case ColumnKind::numbers: {
      Value::Floats numbers(count);
      for (size_t i = 0; i < count; ++i)
        numbers[i] = read_cell(*range.values, range.begin + int64_t(i)).number();
      return numbers;
    }
    case ColumnKind::texts: {
      Value::Strings texts(count);
      for (size_t i = 0; i < count; ++i)
        texts[i] = read_cell(*range.values, range.begin + int64_t(i)).str();
      return texts;
    }
    default: {
      Value::Ints ints(count);
      for (size_t i = 0; i < count; ++i)
        ints[i] =
            read_cell(*range.values, range.begin + int64_t(i)).integer();  // bools, dictionaries
      return ints;
    }
  }
}

bool is_json_extension(const arrow::DataType& type) {
  return type.id() == Type::EXTENSION &&
         static_cast<const arrow::ExtensionType&>(type).extension_name() == "arrow.json";
}

Json struct_cell(const Array& column, int64_t row) {
  const auto& cells = as<arrow::StructArray>(column);
  auto object = Json::object();
  OrderedMembers members;
  for (int i = 0; i < cells.num_fields(); ++i)
    members.set(object, cells.type()->field(i)->name(), read_json_cell(*cells.field(i), row));
  return object;
}

Json parse_stored(const std::string& text) { return parse_ordered_json(text, "a JSON cell"); }

}  // namespace

void check_arrow(const arrow::Status& status, const std::filesystem::path& file) {
  if (status.ok()) return;
  if (status.IsOutOfMemory()) throw damaged(file, "not enough memory: " + status.message());
  auto reason = status.message();
  if (const auto end = reason.find("\n"); end != std::string::npos) reason.resize(end);
  throw damaged(file, reason);
}

CellCoding coding_of(const arrow::Field& field) {
  if (is_json_extension(*field.type())) return CellCoding::json;
  if (field.metadata() == nullptr) return CellCoding::plain;
  if (const auto name = field.metadata()->Get("ARROW:extension:name");
      name.ok() && *name == "arrow.json")
    return CellCoding::json;
  const auto coding = field.metadata()->Get(kCodingKey);
  if (!coding.ok()) return CellCoding::plain;
  return *coding == "json"     ? CellCoding::json
         : *coding == "tensor" ? CellCoding::tensor
                               : CellCoding::plain;
}

ColumnKind kind_of_type(const arrow::DataType& type) {
  if (is_json_extension(type)) return ColumnKind::nested;
  switch (type.id()) {
    case Type::NA: return ColumnKind::null;
    case Type::BOOL: return ColumnKind::boolean;
    case Type::INT8:
    case Type::INT16:
    case Type::INT32:
    case Type::INT64:
    case Type::UINT8:
    case Type::UINT16:
    case Type::UINT32:
    case Type::UINT64: return ColumnKind::integer;
    case Type::HALF_FLOAT:
    case Type::FLOAT:
    case Type::DOUBLE:
    case Type::DECIMAL32:
    case Type::DECIMAL64:
    case Type::DECIMAL128:
    case Type::DECIMAL256: return ColumnKind::number;
    case Type::DICTIONARY:
      return kind_of_type(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::EXTENSION:
      return kind_of_type(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case Type::STRUCT:
    case Type::MAP: return ColumnKind::nested;
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
      if (is_json_extension(*type.field(0)->type())) return ColumnKind::nested;
      switch (kind_of_type(*type.field(0)->type())) {
        case ColumnKind::null:
        case ColumnKind::boolean:
        case ColumnKind::integer: return ColumnKind::integers;
        case ColumnKind::number: return ColumnKind::numbers;
        case ColumnKind::text: return ColumnKind::texts;
        default: return ColumnKind::nested;
      }
    default: return ColumnKind::text;
  }
}

Value read_cell(const Array& column, int64_t row) {
  if (column.IsNull(row)) return {};
  switch (column.type_id()) {
    case Type::NA: return {};
    case Type::BOOL: return as<arrow::BooleanArray>(column).Value(row);
    case Type::UINT64: {  // beyond int64: a float, as in JSON files
      const auto number = as<arrow::UInt64Array>(column).Value(row);
      return number <= uint64_t(std::numeric_limits<int64_t>::max()) ? Value(int64_t(number))
                                                                     : Value(double(number));
    }
    case Type::DICTIONARY: {
      const auto& cells = as<arrow::DictionaryArray>(column);
      const auto index = cells.GetValueIndex(row);
      if (index < 0 || index >= cells.dictionary()->length())
        throw broken(column, fmt::format("row {} refers to entry {} of {}", row, index,
                                         cells.dictionary()->length()));
      return read_cell(*cells.dictionary(), index);
    }
    case Type::EXTENSION: {
      const auto& storage = *as<arrow::ExtensionArray>(column).storage();
      return is_json_extension(*column.type())
                 ? value_from_json(parse_stored(text_cell(storage, row)))
                 : read_cell(storage, row);
    }
    case Type::STRUCT:
    case Type::MAP: return Value::nested(read_json_cell(column, row));
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST: return list_cell(column, row);
    default: break;
  }
  switch (kind_of_type(*column.type())) {
    case ColumnKind::integer: return integer_cell(column, row);
    case ColumnKind::number: return number_cell(column, row);
    default: return text_cell(column, row);
  }
}

Json read_json_cell(const Array& column, int64_t row) {
  if (column.IsNull(row)) return nullptr;
  switch (column.type_id()) {
    case Type::NA: return nullptr;
    case Type::STRUCT: return struct_cell(column, row);
    case Type::MAP: {  // pairs, as Python has it
      const auto range = list_range(column, row);
      auto pairs = Json::array();
      const auto& entries = as<arrow::StructArray>(*range.values);
      for (auto i = range.begin; i < range.end; ++i)
        pairs.push_back(
            {read_json_cell(*entries.field(0), i), read_json_cell(*entries.field(1), i)});
      return pairs;
    }
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST: return json_list(list_range(column, row));
    default: return json_from_value(read_cell(column, row));
  }
}

std::string pack_tensor(const torch::Tensor& tensor) {
  const auto plain = tensor.detach().cpu().contiguous();
  std::string bytes;
  bytes += char(plain.scalar_type());
  bytes += char(plain.dim());
  for (const auto size : plain.sizes())
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  return bytes;
}

Value read_tensor_cell(const Array& column, int64_t row) {
  if (column.IsNull(row)) return {};
  const auto bytes = text_cell(column, row);
  const auto bad = [&] {
    return broken(column, fmt::format("row {} is not a packed tensor", row));
  };
  if (bytes.size() < 2 || uint8_t(bytes[0]) >= uint8_t(torch::ScalarType::NumOptions)) throw bad();
  const auto type = torch::ScalarType(bytes[0]);
  std::vector<int64_t> sizes(static_cast<uint8_t>(bytes[1]));
  const size_t head = 2 + sizes.size() * sizeof(int64_t);
  if (bytes.size() < head) throw bad();
  std::copy_n(bytes.data() + 2, head - 2, reinterpret_cast<char*>(sizes.data()));
  int64_t elements = 1;
  for (const auto size : sizes)
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) throw bad();
  if (size_t(elements) * torch::elementSize(type) != bytes.size() - head) throw bad();
  auto tensor = torch::empty(sizes, type);
  std::copy_n(bytes.data() + head, bytes.size() - head, static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

}  // namespace gradus::sources

#endif
