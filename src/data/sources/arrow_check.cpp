#ifdef GRADUS_WITH_ARROW

#include "data/sources/arrow_check.h"

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>

#include "data/sources/arrow_cell.h"

namespace gradus::sources {
namespace {

// Arrow makes the arrays inside an array when they are first asked for, some of them without a
// lock.
void make_inner_arrays(const arrow::Array& array) {
  using arrow::Type;
  const auto inner = [](const std::shared_ptr<arrow::Array>& child) {
    if (child != nullptr) make_inner_arrays(*child);
  };
  switch (array.type_id()) {
    case Type::DICTIONARY:
      inner(static_cast<const arrow::DictionaryArray&>(array).dictionary());
      break;
    case Type::EXTENSION: inner(static_cast<const arrow::ExtensionArray&>(array).storage()); break;
    case Type::LIST:
    case Type::MAP: inner(static_cast<const arrow::ListArray&>(array).values()); break;
    case Type::LARGE_LIST: inner(static_cast<const arrow::LargeListArray&>(array).values()); break;
    case Type::FIXED_SIZE_LIST:
      inner(static_cast<const arrow::FixedSizeListArray&>(array).values());
      break;
    case Type::STRUCT: {
      const auto& cells = static_cast<const arrow::StructArray&>(array);
      for (int i = 0; i < cells.num_fields(); ++i) inner(cells.field(i));
      break;
    }
    default: break;
  }
}

std::shared_ptr<arrow::DataType> bytes_type(const arrow::DataType& text) {
  switch (text.id()) {
    case arrow::Type::STRING: return arrow::binary();
    case arrow::Type::LARGE_STRING: return arrow::large_binary();
    case arrow::Type::STRING_VIEW: return arrow::binary_view();
    default: return nullptr;
  }
}

// The same data with texts as bytes, as far as they lie in lists and structs.
std::shared_ptr<arrow::ArrayData> texts_as_bytes(const std::shared_ptr<arrow::ArrayData>& data) {
  using arrow::Type;
  if (auto type = bytes_type(*data->type)) {
    auto bytes = data->Copy();
    bytes->type = std::move(type);
    return bytes;
  }
  const auto id = data->type->id();
  if (id != Type::LIST && id != Type::LARGE_LIST && id != Type::FIXED_SIZE_LIST &&
      id != Type::STRUCT)
    return data;
  auto copy = data->Copy();
  arrow::FieldVector fields;
  for (size_t i = 0; i < copy->child_data.size(); ++i) {
    auto& child = copy->child_data[i];
    child = texts_as_bytes(child);
    fields.push_back(data->type->field(int(i))->WithType(child->type));
  }
  switch (id) {
    case Type::LIST: copy->type = arrow::list(fields[0]); break;
    case Type::LARGE_LIST: copy->type = arrow::large_list(fields[0]); break;
    case Type::STRUCT: copy->type = arrow::struct_(std::move(fields)); break;
    default:
      copy->type = arrow::fixed_size_list(
          fields[0], static_cast<const arrow::FixedSizeListType&>(*data->type).list_size());
  }
  return copy;
}

void check_in_full(const arrow::Array& array, const std::filesystem::path& file) {
  check_arrow(arrow::MakeArray(texts_as_bytes(array.data()))->ValidateFull(), file);
}

}  // namespace

void ArrayChecker::check(const arrow::Array& array, const std::filesystem::path& file) {
  if (array.type_id() == arrow::Type::DICTIONARY) {
    // `read_cell` compares each index with the dictionary's length.
    const auto& cells = static_cast<const arrow::DictionaryArray&>(array);
    check_arrow(cells.indices()->ValidateFull(), file);
    check_dictionary(cells.dictionary(), file);
  } else {
    check_in_full(array, file);
  }
  make_inner_arrays(array);
}

void ArrayChecker::check_dictionary(const std::shared_ptr<arrow::Array>& dictionary,
                                    const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  if (sound_.contains(dictionary->data())) return;
  check_in_full(*dictionary, file);
  sound_.insert(dictionary->data());
}

}  // namespace gradus::sources

#endif
