#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file_storage.h"
#include "formats/output_file.h"

namespace gradus {

/// A file inside a zip archive whose bytes lie in the archive as they are.
struct ZipEntry {
  size_t offset = 0;  ///< of the first byte of the content, in the archive
  size_t size = 0;
  uint32_t checksum = 0;  ///< CRC-32; 0 when the writer left it out
};

/// The directory of an uncompressed zip archive such as `torch.save` writes (zip and zip64).
///
/// Every offset and length is checked against the file, and entries may not overlap, so that an
/// entry can be used as it stands. Names are given without the archive's top folder. Throws G-PT-1.
class ZipDirectory {
 public:
  explicit ZipDirectory(const MappedFile& file);

  /// Null when there is none.
  const ZipEntry* find(const std::string& name) const;
  /// The whole names of all entries, as they stand in the archive.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::map<std::string, ZipEntry> entries_;
  std::vector<std::string> paths_;
};

/// Writes an uncompressed zip archive from first to last byte; content begins at multiples of 64
/// bytes.
class ZipWriter {
 public:
  /// All entries are put under `folder`.
  ZipWriter(ChecksummedSink& sink, std::string folder) : sink_(sink), folder_(std::move(folder)) {}

  void add(const std::string& name, const void* data, size_t size);
  void add(const std::string& name, std::string_view text) { add(name, text.data(), text.size()); }
  /// Writes the directory; nothing may follow.
  void finish();

 private:
  struct Record {
    std::string name;
    uint64_t offset = 0;
    uint64_t size = 0;
    uint32_t checksum = 0;
  };

  ChecksummedSink& sink_;
  std::string folder_;
  std::vector<Record> records_;
};

}  // namespace gradus
