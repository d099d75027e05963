#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/source_files.h"

namespace gradus::sources {

/// The bytes of a text file from front to back, unpacked. Not mapped, so that a file that is cut
/// short is an error.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `count` bytes; 0 at the end. Throws G-IO-1, G-SRC-8 for a damaged compressed file.
  virtual size_t read(char* to, size_t count) = 0;
  /// To this byte of the unpacked text. Compressed files unpack and drop what is before.
  virtual void seek(int64_t offset) = 0;
};

/// Opens a plain, .gz or .zst file. Throws G-IO-1, G-SRC-9.
std::unique_ptr<ByteStream> open_stream(const SourceFile& file);

/// Whole lines of a file, some megabytes at a time, or one line that is longer.
class BlockReader {
 public:
  struct Block {
    int64_t offset = 0;      ///< of the first byte in the file
    int64_t first_line = 1;  ///< number of the first line
    std::string bytes = {};  ///< ends after a line break, or at the end of the file
  };

  /// `file` is for messages; no line may have more than `longest` bytes.
  BlockReader(std::unique_ptr<ByteStream> stream, size_t block_size, std::filesystem::path file,
              int64_t longest);
  /// Nothing at the end. Throws G-SRC-19 for a line that is too long. A leading UTF-8 byte-order
  /// mark is skipped when `skip_mark` is set.
  std::optional<Block> next();
  /// Go on at the line that begins at `offset` and has this number.
  void seek(int64_t offset, int64_t line);
  bool skip_mark = false;

 private:
  std::unique_ptr<ByteStream> stream_;
  size_t block_size_;
  std::filesystem::path file_;
  int64_t longest_;
  std::string rest_;
  int64_t offset_ = 0;
  int64_t line_ = 1;
  bool end_ = false;
};

/// The unpacked bytes of a text file, at any place.
///
/// Thread-safety: `read` from any thread.
class TextBytes {
 public:
  /// Compressed files are unpacked now, into memory up to `options.in_memory_limit`, else into a
  /// file without a name. Throws G-SRC-20 when they are larger than `options.max_expansion` allows.
  TextBytes(const SourceFile& file, const LoadOptions& options);
  ~TextBytes();
  TextBytes(const TextBytes&) = delete;
  TextBytes& operator=(const TextBytes&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }
  /// Bytes [offset, offset + count). Throws G-SRC-11 when the file has become shorter.
  std::string read(int64_t offset, int64_t count) const;
  /// From front to back; the stream must not outlive this object.
  std::unique_ptr<ByteStream> stream() const;

 private:
  void unpack(const SourceFile& file, const LoadOptions& options, int64_t limit);
  std::string read_memory(size_t offset, size_t count) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::vector<std::string> pieces_;  // of a small compressed file, all but the last of one size
  int64_t size_ = 0;
};

/// Where the first byte of `text` lies that is not UTF-8; nothing when all is.
std::optional<size_t> invalid_utf8(std::string_view text);

}  // namespace gradus::sources
