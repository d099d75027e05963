#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

namespace gradus {

class AppendFile;

/// The file of a tracker: each piece goes to the system at once. A failure is reported once, as a
/// warning, and from then on nothing is written; training continues.
class TrackerFile {
 public:
  TrackerFile();
  ~TrackerFile();
  TrackerFile(const TrackerFile&) = delete;
  TrackerFile& operator=(const TrackerFile&) = delete;

  /// Opens or creates the file and its folder. Warns and returns false when that fails.
  bool open(const std::filesystem::path& file);
  /// Cuts off what follows the last line break: the rest of a write that a crash interrupted.
  void drop_partial_line();
  void append(std::string_view bytes);
  void close();

 private:
  template <class Work>
  void attempt(Work work);

  std::unique_ptr<AppendFile> file_;
};

}  // namespace gradus
