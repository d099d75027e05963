#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace gradus {

class AppendFile;

/// The record log of a wandb run: a header and records in blocks of 32 KiB, in LevelDB's log format
/// with zlib's checksum.
///
/// `append` gathers, `flush` writes and throws `Error` G-IO-2 when it cannot. What a failed `flush`
/// may have left in the file is cut off by the next one.
/// Thread-safety: none.
class WandbLog {
 public:
  /// Creates the file with its header, or goes on in one that is there after its first `keep`
  /// bytes.
  explicit WandbLog(std::filesystem::path file, int64_t keep = 0);
  ~WandbLog();

  /// Adds a record.
  void append(std::string_view record);
  /// Writes what was added.
  void flush();
  /// Takes back what was added since the last `flush` that succeeded.
  void discard();
  /// The size of the file with all that was added.
  int64_t size() const { return size_ + int64_t(pending_.size()); }

 private:
  std::filesystem::path path_;
  int64_t size_ = 0;  // of the file, as far as it is whole
  std::string pending_;
  std::unique_ptr<AppendFile> file_;
};

}  // namespace gradus
