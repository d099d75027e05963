#pragma once

#include <cstddef>
#include <filesystem>
#include <type_traits>
#include <utility>

namespace gradus {

/// While one lives, a mapped file that turns out to be cut reads as zeros instead of ending the
/// process by SIGBUS, on any thread. `read_mapped` is the way to use it.
class MappedReads {
 public:
  MappedReads();
  ~MappedReads();
  MappedReads(const MappedReads&) = delete;
  MappedReads& operator=(const MappedReads&) = delete;

  /// Throws `Error` G-IO-4 if a file that is mapped now was found to be cut.
  void check() const;
};

/// Runs `read`, which touches bytes of mapped files, and throws G-IO-4 if one of these files is
/// shorter by now than when it was mapped.
template <class Read>
auto read_mapped(Read&& read) {
  const MappedReads scope;
  const auto checked = [&]() -> decltype(read()) {
    try {
      return std::forward<Read>(read)();
    } catch (...) {
      scope.check();  // zeros were taken for content
      throw;
    }
  };
  if constexpr (std::is_void_v<decltype(read())>) {
    checked();
    scope.check();
  } else {
    auto result = checked();
    scope.check();
    return result;
  }
}

/// What `MappedFile` tells about its mappings. The memory from `begin` must be mapped in between.
void add_mapping(const char* begin, size_t size, const std::filesystem::path& file);
void remove_mapping(const char* begin);

}  // namespace gradus
