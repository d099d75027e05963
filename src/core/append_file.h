#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

/// A file that grows at its end. It is opened once, and a link of its name is not followed. All
/// members throw `Error` G-IO-2.
class AppendFile {
 public:
  /// Opens or creates the file and cuts it to `keep` bytes; by default it stays as it is.
  explicit AppendFile(const std::filesystem::path& path, std::optional<int64_t> keep = {});
  /// Closes the file. What was appended and not flushed is lost.
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Keeps the bytes in memory until there are several megabytes of them.
  void append(std::string_view bytes);
  /// Hands what was appended to the system, in one write where it takes it.
  void flush();
  /// Flushes, and waits until everything is on the disk.
  void sync();
  /// Replaces bytes at the beginning.
  void overwrite(std::string_view bytes);
  /// Cuts off what follows the last line break: the rest of a write that a crash interrupted.
  void drop_partial_line();

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::string buffer_;
};

}  // namespace gradus
