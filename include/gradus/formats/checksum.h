#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace gradus {

/// CRC-32 as in zip, gzip and PNG (polynomial 0x04C11DB7, reflected): the checksum of the entries
/// of a torch file and of the files in a checkpoint's manifest. It finds damage; it is no
/// protection against forgery.
///
/// Folds 64 bytes at a time with carry-less multiplication where the processor has it (several
/// GB/s), otherwise zlib's tables.
class Crc32 {
 public:
  void update(const void* data, size_t size);
  /// As if `size` further bytes whose own checksum is `checksum` had been given to `update`. Reads
  /// nothing.
  void append(uint32_t checksum, uint64_t size);
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 0;
};

/// The checksum of a piece of memory.
uint32_t checksum_of(const void* data, size_t size);

/// What a writer of this folder wrote: enough for a manifest, without reading the file again.
struct WrittenFile {
  uint64_t size = 0;
  uint32_t checksum = 0;
  bool operator==(const WrittenFile&) const = default;
};

/// Size and checksum of a file on disk, read in pieces. Throws G-IO-1.
WrittenFile file_checksum(const std::filesystem::path& file);

/// "crc32:0d4a1185", the form used in manifests.
std::string checksum_text(uint32_t checksum);

/// Whether a written file is flushed to the disk before its writer returns. `no` leaves it to a
/// later `sync_path`.
enum class Sync { no, yes };

}  // namespace gradus
