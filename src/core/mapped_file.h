#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace gradus {

/// The bytes of a file, mapped into memory. An empty file maps to nothing.
///
/// Thread-safety: const members from any thread.
class MappedFile {
 public:
  /// `private_copy`: the bytes may be written to, and what is written stays in this process.
  enum class Access { read_only, private_copy };

  /// Throws `Error` G-IO-1.
  explicit MappedFile(const std::filesystem::path& path, Access access = Access::read_only);
  /// Maps an open file for reading and becomes its owner; `path` is for messages.
  MappedFile(int descriptor, const std::filesystem::path& path);
  /// Bytes that are in memory already; `name` is for messages.
  static std::shared_ptr<MappedFile> from_bytes(std::string bytes, std::filesystem::path name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  /// Only for `private_copy` and `from_bytes`.
  char* data() { return data_; }
  size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// The length of a `read_only` file now, if it has become shorter than the mapping: touching the
  /// bytes beyond it would end the process. Asks the system at most every few milliseconds, since
  /// rows are read by the million. Throws `Error` G-IO-1.
  std::optional<size_t> shortened_to() const;
  /// Gives the pages of a `read_only` file back to the system; they are read again when touched.
  void release_pages() const;

 private:
  explicit MappedFile(std::string bytes, std::filesystem::path name);
  void map(Access access);

  std::filesystem::path path_;
  std::string bytes_;    // when not mapped
  int descriptor_ = -1;  // open as long as the length may be asked for
  char* data_ = nullptr;
  size_t size_ = 0;
  mutable std::atomic<int64_t> next_check_{0};  // of the steady clock
};

}  // namespace gradus
