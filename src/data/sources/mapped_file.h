#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace gradus::sources {

/// A file mapped into memory for reading. An empty file maps to nothing.
///
/// Thread-safety: const members from any thread.
class MappedFile {
 public:
  /// Throws G-IO-1.
  explicit MappedFile(const std::filesystem::path& path);
  /// Maps an open file, of which it becomes the owner; `path` is for messages.
  MappedFile(int descriptor, const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// Throws G-SRC-11 when the file has become shorter than it was: reading its end would end the
  /// process. Asks the system at most every few milliseconds, since rows are read by the million.
  void check_length() const;
  /// Gives the pages back to the system; they are read again when touched.
  void release_pages() const;

 private:
  void map();

  int descriptor_ = -1;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  std::filesystem::path path_;
  mutable std::atomic<int64_t> next_check_{0};  // of the steady clock
};

/// A file without a name in `folder` (empty: the system's place), gone when closed. Gives its
/// descriptor.
int open_unnamed_file(const std::filesystem::path& folder);

}  // namespace gradus::sources
