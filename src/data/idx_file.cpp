#include "data/idx_file.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <climits>
#include <memory>

namespace gradus::data {
namespace {

[[noreturn]] void throw_damaged(const std::string& where, const std::string& what) {
  throw Error("G-DATA-21", ErrorKind::data, fmt::format("cannot read {}: {}", where, what),
              "The file is cut short or damaged. Fetch it again.");
}

/// Bytes from front to back; those of a gzip stream unpacked.
class MaybeGzipped {
 public:
  MaybeGzipped(std::string_view content, const std::string& where)
      : content_(content), where_(where) {
    if (!content.starts_with("\x1f\x8b")) return;
    if (content.size() > UINT_MAX) throw_damaged(where, "a gzip file above 4 GiB");
    if (inflateInit2(&stream_, 15 + 16) != Z_OK)
      throw_damaged(where, "the gzip reader could not be started");
    opened_.reset(&stream_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream_.avail_in = static_cast<uInt>(content.size());
  }
  MaybeGzipped(const MaybeGzipped&) = delete;
  MaybeGzipped& operator=(const MaybeGzipped&) = delete;

  /// The most bytes that the content can be. A byte of gzip gives at most 1032.
  uint64_t most() const {
    constexpr uint64_t kGzipGivesAtMost = 1032;
    return content_.size() * (opened_ ? kGzipGivesAtMost : 1);
  }

  /// Fills `to` as far as there are bytes. Returns how many there were.
  size_t read(char* to, size_t count) {
    if (!opened_) {
      const auto n = content_.substr(at_).copy(to, count);
      at_ += n;
      return n;
    }
    size_t done = 0;
    while (done < count && !ended_) {
      stream_.next_out = reinterpret_cast<Bytef*>(to + done);
      const auto room = static_cast<uInt>(std::min<size_t>(count - done, 1 << 30));
      stream_.avail_out = room;
      inflate_some();
      done += room - stream_.avail_out;
    }
    return done;
  }

 private:
  void inflate_some() {
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END)  // another member may follow
      ended_ = stream_.avail_in == 0 || inflateReset(&stream_) != Z_OK;
    else if (status == Z_BUF_ERROR)
      throw_damaged(where_, "the gzip stream ends too early");
    else if (status != Z_OK)
      throw_damaged(where_, fmt::format("it is not a whole gzip stream ({})",
                                        stream_.msg != nullptr ? stream_.msg : "data error"));
  }

  std::string_view content_;
  const std::string& where_;
  size_t at_ = 0;
  z_stream stream_{};
  std::unique_ptr<z_stream, int (*)(z_stream*)> opened_{nullptr, inflateEnd};
  bool ended_ = false;
};

uint32_t big_endian(std::string_view content, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(content[at + i]);
  return value;
}

/// The header, as far as it is there. Throws when its first four bytes are of another kind of file.
std::string read_header(MaybeGzipped& bytes, size_t dimensions, const std::string& where) {
  std::string header(4 + 4 * dimensions, '\0');
  header.resize(bytes.read(header.data(), header.size()));
  if (header.size() < 4) return header;
  const uint32_t magic = big_endian(header, 0);
  const uint32_t expected = 0x800 + static_cast<uint32_t>(dimensions);
  if (magic == expected) return header;
  throw Error("G-DATA-22", ErrorKind::data,
              fmt::format("{} begins with {:#010x}, expected {:#010x} (idx, bytes, {} dimension{})",
                          where, magic, expected, dimensions, dimensions == 1 ? "" : "s"),
              magic == 0x801 || magic == 0x803 ? "Images and labels are swapped."
                                               : "It is not an idx file of this kind.");
}

}  // namespace

IdxFile parse_idx(std::string_view content, size_t dimensions, const std::string& where) {
  MaybeGzipped bytes(content, where);
  const auto header = read_header(bytes, dimensions, where);
  if (header.size() < 4 + 4 * dimensions)
    throw_damaged(where,
                  fmt::format("{} bytes, expected at least {}", header.size(), 4 + 4 * dimensions));
  IdxFile result;
  unsigned __int128 count = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    result.shape.push_back(big_endian(header, 4 + 4 * i));
    count *= static_cast<uint64_t>(result.shape.back());
  }
  const auto wrong = [&](const std::string& found) {
    throw_damaged(where, fmt::format("{} of values, the header says {} ({})", found,
                                     static_cast<uint64_t>(count), fmt::join(result.shape, " x ")));
  };
  if (count > bytes.most()) wrong(fmt::format("at most {} bytes", bytes.most() - header.size()));
  result.values.resize(static_cast<size_t>(count));
  const auto found = bytes.read(result.values.data(), result.values.size());
  if (found < result.values.size()) wrong(fmt::format("{} bytes", found));
  char more = 0;
  if (bytes.read(&more, 1) > 0) wrong("more bytes");
  return result;
}

IdxFile read_idx(const std::filesystem::path& file, size_t dimensions) {
  return parse_idx(read_file(file), dimensions, file.string());
}

}  // namespace gradus::data
