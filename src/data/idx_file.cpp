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

std::string unpack(const std::string& packed, const std::string& where) {
  if (packed.size() > UINT_MAX) throw_damaged(where, "a gzip file above 4 GiB");
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK)
    throw_damaged(where, "the gzip reader could not be started");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string content;
  std::string buffer(size_t{1} << 18, '\0');
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) {
      throw_damaged(where, status == Z_BUF_ERROR
                               ? "the gzip stream ends too early"
                               : fmt::format("it is not a whole gzip stream ({})",
                                             stream.msg != nullptr ? stream.msg : "data error"));
    }
    content.append(buffer, 0, buffer.size() - stream.avail_out);
    if (status == Z_STREAM_END && stream.avail_in > 0 && inflateReset(&stream) == Z_OK)
      status = Z_OK;  // several members
  }
  return content;
}

uint32_t big_endian(std::string_view content, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(content[at + i]);
  return value;
}

}  // namespace

std::string unpack_if_gzipped(std::string content, const std::string& where) {
  const bool gzipped = content.size() >= 2 && content[0] == '\x1f' && content[1] == '\x8b';
  return gzipped ? unpack(content, where) : content;
}

std::string read_maybe_gzipped(const std::filesystem::path& file) {
  return unpack_if_gzipped(read_file(file), file.string());
}

IdxFile parse_idx(std::string content, size_t dimensions, const std::string& where) {
  const size_t header = 4 + 4 * dimensions;
  if (content.size() < 4)
    throw_damaged(where, fmt::format("{} bytes, expected at least {}", content.size(), header));
  const uint32_t magic = big_endian(content, 0);
  const uint32_t expected = 0x800 + static_cast<uint32_t>(dimensions);
  if (magic != expected) {
    throw Error(
        "G-DATA-22", ErrorKind::data,
        fmt::format("{} begins with {:#010x}, expected {:#010x} (idx, bytes, {} dimension{})",
                    where, magic, expected, dimensions, dimensions == 1 ? "" : "s"),
        magic == 0x801 || magic == 0x803 ? "Images and labels are swapped."
                                         : "It is not an idx file of this kind.");
  }
  if (content.size() < header)
    throw_damaged(where, fmt::format("{} bytes, expected at least {}", content.size(), header));
  IdxFile result;
  unsigned __int128 count = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    result.shape.push_back(big_endian(content, 4 + 4 * i));
    count *= static_cast<uint64_t>(result.shape.back());
  }
  if (content.size() - header != count) {
    throw_damaged(
        where, fmt::format("{} bytes of values, the header says {} ({})", content.size() - header,
                           static_cast<uint64_t>(count), fmt::join(result.shape, " x ")));
  }
  content.erase(0, header);
  result.values = std::move(content);
  return result;
}

}  // namespace gradus::data
