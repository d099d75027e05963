#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/array/array_base.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace gradus::sources {

/// Checks arrays from files in full: every offset, view, type id, run and dictionary index points
/// into the array. Only then reading a cell is safe.
///
/// Whether text is UTF-8 is left to those who take it for that, such as the tokenizer: looking at
/// every byte of it would take longer than all else here.
///
/// A dictionary that many batches share is checked once.
/// Thread-safety: any thread.
class ArrayChecker {
 public:
  /// Throws G-SRC-8. Afterwards `array` may be read from several threads at once: what Arrow makes
  /// on first use inside it is made here.
  void check(const arrow::Array& array, const std::filesystem::path& file);

 private:
  void check_dictionary(const std::shared_ptr<arrow::Array>& dictionary,
                        const std::filesystem::path& file);

  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<arrow::ArrayData>> sound_;  // dictionaries
};

}  // namespace gradus::sources

#endif
