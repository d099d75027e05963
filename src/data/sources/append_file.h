#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gradus::sources {

/// A file that grows at its end.
class AppendFile {
 public:
  /// Opens or creates it and cuts it to `keep` bytes. Throws G-IO-2.
  AppendFile(const std::filesystem::path& path, int64_t keep);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  /// Writes out what was appended and waits until it is on the disk.
  void sync();
  /// Replaces bytes at the beginning.
  void overwrite(std::string_view bytes);

 private:
  void flush();

  std::filesystem::path path_;
  int descriptor_;
  std::string buffer_;
};

}  // namespace gradus::sources
