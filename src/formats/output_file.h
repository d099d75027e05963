#pragma once

#include <gradus/formats/checksum.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace gradus {

/// A file being written from first to last byte. Small pieces are gathered, large ones go straight
/// to the system. A file that is there is replaced, so that mappings of it stay valid; a link is
/// not followed. Throws G-IO-2. Destroyed without `close`, it leaves what was written so far.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path file);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, size_t size);
  void close(Sync sync);

 private:
  void write_through(const char* data, size_t size);
  void flush();
  [[noreturn]] void fail(int code) const;

  std::filesystem::path file_;
  int fd_ = -1;
  std::string gathered_;
};

/// Hands bytes on and remembers how many and their checksum.
class ChecksummedSink {
 public:
  explicit ChecksummedSink(std::function<void(const void*, size_t)> sink)
      : sink_(std::move(sink)) {}

  void write(const void* data, size_t size);
  /// Bytes whose checksum is known already: they are not gone through again.
  void write(const void* data, size_t size, uint32_t checksum);
  uint64_t size() const { return size_; }
  WrittenFile written() const { return {size_, crc_.value()}; }

 private:
  std::function<void(const void*, size_t)> sink_;
  uint64_t size_ = 0;
  Crc32 crc_;
};

}  // namespace gradus
