#pragma once

#include <filesystem>
#include <string_view>

namespace gradus {

/// A file that is only appended to, each piece in one write. Failure is reported once and then
/// ignored.
class AppendFile {
 public:
  AppendFile() = default;
  ~AppendFile() { close(); }
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Opens or creates the file and its folder. Warns and returns false when that fails.
  bool open(const std::filesystem::path& file);
  /// Cuts off what follows the last line break: the rest of a write that a crash interrupted.
  void drop_partial_line();
  void append(std::string_view bytes);
  void close();

 private:
  void warn(const char* doing, int code);

  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace gradus
