#include "data/sources/byte_stream.h"

#include <fcntl.h>
#include <gradus/core/error.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "core/file_errors.h"
#include "core/open_file.h"
#include "data/sources/source_errors.h"
#include "data/sources/unnamed_file.h"
#include "data/sources/zstd_stream.h"

namespace gradus::sources {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kUnpackedPiece = size_t{4} << 20;

size_t read_some(int descriptor, char* to, size_t count, const std::filesystem::path& path) {
  while (true) {
    const auto n = ::read(descriptor, to, count);
    if (n >= 0) return size_t(n);
    if (errno != EINTR) throw cannot_read(path, errno);
  }
}

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const std::filesystem::path& path)
      : path_(path), descriptor_(open_for_reading(path)) {}
  ~PlainStream() override { ::close(descriptor_); }
  size_t read(char* to, size_t count) override { return read_some(descriptor_, to, count, path_); }
  void seek(int64_t offset) override {
    struct stat info{};
    if (::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode) && info.st_size < offset)
      throw cut_short(path_, offset, info.st_size);
    if (::lseek(descriptor_, offset, SEEK_SET) < 0) throw cannot_read(path_, errno);
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const std::filesystem::path& path) : path_(path) {
    file_ = ::gzdopen(open_for_reading(path), "rb");
    if (file_ == nullptr) throw cannot_read(path, ENOMEM);
    ::gzbuffer(file_, 1 << 18);
  }
  ~GzipStream() override { ::gzclose(file_); }
  size_t read(char* to, size_t count) override {
    const int n = ::gzread(file_, to, unsigned(std::min<size_t>(count, 1 << 30)));
    int code = Z_OK;
    const char* reason = ::gzerror(file_, &code);
    if (n < 0 || code == Z_BUF_ERROR)
      throw damaged(path_, code == Z_ERRNO       ? std::strerror(errno)
                           : code == Z_BUF_ERROR ? "the gzip data ends too early"
                                                 : std::string("gzip: ") + reason);
    return size_t(n);
  }
  void seek(int64_t offset) override {
    if (::gzseek(file_, offset, SEEK_SET) != offset)
      throw damaged(path_, "the gzip data ends before the position to continue at");
  }

 private:
  std::filesystem::path path_;
  gzFile file_ = nullptr;
};

// Reads bytes that others read too: keeps its own position.
class SharedStream : public ByteStream {
 public:
  explicit SharedStream(const TextBytes& bytes) : bytes_(bytes) {}
  size_t read(char* to, size_t count) override {
    const auto part = bytes_.read(at_, std::min(int64_t(count), bytes_.size() - at_));
    part.copy(to, part.size());
    at_ += int64_t(part.size());
    return part.size();
  }
  void seek(int64_t offset) override { at_ = std::min(offset, bytes_.size()); }

 private:
  const TextBytes& bytes_;
  int64_t at_ = 0;
};

// One past the last line break of `bytes` after `checked`, 0 when there is none. A "\r" at the very
// end may be half of "\r\n".
size_t last_break(const std::string& bytes, size_t checked) {
  for (size_t i = bytes.size(); i > checked; --i)
    if (bytes[i - 1] == '\n' || (bytes[i - 1] == '\r' && i < bytes.size())) return i;
  return 0;
}

}  // namespace

std::unique_ptr<ByteStream> open_stream(const SourceFile& file) {
  switch (file.compression) {
    case Compression::gzip: return std::make_unique<GzipStream>(file.path);
    case Compression::zstd: return open_zstd_stream(file.path);
    case Compression::none: break;
  }
  return std::make_unique<PlainStream>(file.path);
}

BlockReader::BlockReader(std::unique_ptr<ByteStream> stream, size_t block_size,
                         std::filesystem::path file, int64_t longest)
    : stream_(std::move(stream)),
      block_size_(block_size),
      file_(std::move(file)),
      longest_(longest) {}

void BlockReader::seek(int64_t offset, int64_t line) {
  stream_->seek(offset);
  rest_.clear();
  offset_ = offset;
  line_ = line;
  end_ = false;
}

// What a long line has before its last piece is kept in `pieces` and put together when the end is
// there: one string that grows would take up to three times its size.
std::optional<BlockReader::Block> BlockReader::next() {
  std::vector<std::string> pieces;
  size_t size = 0, cut = 0;
  auto piece = std::exchange(rest_, {});
  while (!end_ && cut == 0) {
    if (int64_t(size + piece.size()) > longest_)
      throw row_too_long(file_, "line " + with_commas(line_), longest_);
    const auto carried = piece.size();
    piece.resize(carried + block_size_);
    piece.resize(carried + stream_->read(piece.data() + carried, block_size_));
    end_ = piece.size() == carried;
    if (offset_ == 0 && size + carried == 0 && skip_mark && piece.starts_with(kByteOrderMark)) {
      piece.erase(0, kByteOrderMark.size());
      offset_ = int64_t(kByteOrderMark.size());
    }
    if (end_) break;
    cut = last_break(piece, carried > 0 ? carried - 1 : 0);
    if (cut > 0 || piece.empty()) continue;
    const bool half = piece.back() == '\r';  // of "\r\n", perhaps
    if (half) piece.pop_back();
    size += piece.size();
    pieces.push_back(std::exchange(piece, half ? "\r" : ""));
  }
  if (cut > 0) {
    rest_ = piece.substr(cut);
    piece.resize(cut);
  }
  Block block{.offset = offset_, .first_line = line_, .bytes = {}};
  if (!pieces.empty()) block.bytes.reserve(size + piece.size());
  for (auto& part : pieces) block.bytes += std::exchange(part, {});
  if (pieces.empty())
    block.bytes = std::move(piece);
  else
    block.bytes += piece;
  if (block.bytes.empty()) return std::nullopt;
  offset_ += int64_t(block.bytes.size());
  line_ += std::count(block.bytes.begin(), block.bytes.end(), '\n');
  return block;
}

TextBytes::TextBytes(const SourceFile& file, const LoadOptions& options) : path_(file.path) {
  struct stat info{};
  const bool regular = ::stat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  if (regular && file.compression == Compression::none) {
    descriptor_ = open_for_reading(path_);
    if (::fstat(descriptor_, &info) == 0) size_ = info.st_size;
    return;
  }
  // A pipe can be read only once, so what it says is kept.
  unpack(file, options,
         regular ? expansion_limit(info.st_size, options) : std::numeric_limits<int64_t>::max());
}

TextBytes::~TextBytes() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TextBytes::unpack(const SourceFile& file, const LoadOptions& options, int64_t limit) {
  const auto stream = open_stream(file);
  const auto flush = [&] {
    for (const auto& piece : pieces_)
      for (size_t done = 0; done < piece.size();) {
        const auto n = ::write(descriptor_, piece.data() + done, piece.size() - done);
        if (n < 0 && errno != EINTR) throw cannot_write(options.temporary_dir, errno);
        done += size_t(std::max<ssize_t>(n, 0));
      }
    pieces_.clear();
  };
  for (bool end = false; !end;) {
    std::string piece(kUnpackedPiece, '\0');
    size_t filled = 0;
    while (filled < piece.size() && !end) {
      const auto n = stream->read(piece.data() + filled, piece.size() - filled);
      end = n == 0;
      filled += n;
    }
    if (filled < piece.size()) piece = piece.substr(0, filled);
    size_ += int64_t(filled);
    if (size_ > limit)
      throw expands_too_far(path_, int64_t(std::filesystem::file_size(path_)), limit);
    pieces_.push_back(std::move(piece));
    if (size_ <= options.in_memory_limit) continue;
    if (descriptor_ < 0) descriptor_ = open_unnamed_file(options.temporary_dir);
    flush();
  }
}

std::string TextBytes::read_memory(size_t offset, size_t count) const {
  std::string bytes;
  bytes.reserve(count);
  for (auto piece = offset / kUnpackedPiece; bytes.size() < count && piece < pieces_.size();
       ++piece) {
    const auto from = std::max(offset, piece * kUnpackedPiece) - piece * kUnpackedPiece;
    bytes.append(pieces_[piece], from, count - bytes.size());
  }
  return bytes;
}

std::string TextBytes::read(int64_t offset, int64_t count) const {
  if (descriptor_ < 0) return read_memory(size_t(offset), size_t(count));
  std::string bytes(size_t(count), '\0');
  for (int64_t done = 0; done < count;) {
    const auto n = ::pread(descriptor_, bytes.data() + done, size_t(count - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot_read(path_, errno);
    if (n == 0) throw cut_short(path_, size_, offset + done);
    done += n;
  }
  return bytes;
}

std::unique_ptr<ByteStream> TextBytes::stream() const {
  return std::make_unique<SharedStream>(*this);
}

std::optional<size_t> invalid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4) return i;
    for (size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return i;
    const unsigned second = byte(i + 1);  // overlong forms, surrogates, beyond U+10FFFF
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
      return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace gradus::sources
