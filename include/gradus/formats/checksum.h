#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace gradus {

/// CRC-32 as in zip, gzip and PNG (polynomial 0x04C11DB7, reflected).
///
/// It is the checksum of the entries of a torch file and of the files in a checkpoint's manifest.
/// It detects damage; it does not protect against forgery. Where the processor has carry-less
/// multiplication it reads several GB/s, elsewhere zlib computes it.
class Crc32 {
 public:
  /// Adds `size` bytes to the checksum.
  void update(const void* data, size_t size);
  /// Adds `size` bytes whose own checksum is `checksum`, without reading them.
  void append(uint32_t checksum, uint64_t size);
  /// The checksum of all bytes so far.
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 0;
};

/// The checksum of a piece of memory.
uint32_t checksum_of(const void* data, size_t size);

/// What a writer wrote: enough for a manifest, without reading the file again.
struct WrittenFile {
  uint64_t size = 0;      ///< In bytes.
  uint32_t checksum = 0;  ///< CRC-32 of the whole file.
  /// Whether size and checksum are equal.
  bool operator==(const WrittenFile&) const = default;
};

/// Size and checksum of a file on disk, which is read in pieces. Throws `Error` G-IO-1.
WrittenFile file_checksum(const std::filesystem::path& file);

/// "crc32:0d4a1185", the form used in manifests.
std::string checksum_text(uint32_t checksum);

/// Whether a writer flushes its file to disk before it returns.
enum class Sync {
  no,   ///< Leave it to a later `sync_path`.
  yes,  ///< Flush.
};

}  // namespace gradus
