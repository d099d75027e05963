#ifdef GRADUS_WITH_ARROW

#include "data/sources/arrow_check.h"

#include <arrow/array.h>
#include <arrow/extension_type.h>

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

}  // namespace

void ArrayChecker::check(const arrow::Array& array, const std::filesystem::path& file) {
  if (array.type_id() == arrow::Type::DICTIONARY) {
    // `read_cell` compares each index with the dictionary's length.
    const auto& cells = static_cast<const arrow::DictionaryArray&>(array);
    check_arrow(cells.indices()->ValidateFull(), file);
    check_dictionary(cells.dictionary(), file);
  } else {
    check_arrow(array.ValidateFull(), file);
  }
  make_inner_arrays(array);
}

void ArrayChecker::check_dictionary(const std::shared_ptr<arrow::Array>& dictionary,
                                    const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  if (sound_.contains(dictionary->data())) return;
  check_arrow(dictionary->ValidateFull(), file);
  sound_.insert(dictionary->data());
}

}  // namespace gradus::sources

#endif
