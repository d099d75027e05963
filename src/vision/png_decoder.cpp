#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include "vision/decoders.h"

namespace gradus::vision {
namespace {

constexpr const char* kCutShort = "the file is cut short";

/// What libpng reads from and leaves behind. An error of libpng jumps back to `read`, so nothing
/// with a destructor may be made between the two.
struct PngReader {
  std::string_view rest;
  std::array<char, 200> message{};
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit PngReader(std::string_view bytes) : rest(bytes) {}
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void png_failed(png_structp png, png_const_charp message) {
  auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader->message.data(), message, reader->message.size() - 1);
  png_longjmp(png, 1);
}

void ignore_png_warning(png_structp, png_const_charp) {}

void take_png_bytes(png_structp png, png_bytep to, png_size_t count) {
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (reader->rest.size() < count) png_error(png, kCutShort);
  std::memcpy(to, reader->rest.data(), count);
  reader->rest.remove_prefix(count);
}

/// A piece of a PNG file: its name, and what it says of its length.
struct PngChunk {
  std::string_view name;
  size_t length;
};

PngChunk chunk_at(std::string_view bytes, size_t at) {
  const auto* head = reinterpret_cast<const unsigned char*>(bytes.data()) + at;
  return {bytes.substr(at + 4, 4),
          size_t(head[0]) << 24 | size_t(head[1]) << 16 | size_t(head[2]) << 8 | size_t(head[3])};
}

/// Whether a chunk before the pixels says that it goes on beyond the end. libpng would make room
/// for all of it, up to 2 GB, before it looks.
bool is_cut_before_pixels(std::string_view bytes) {
  for (size_t at = 8; at + 8 <= bytes.size();) {
    const auto chunk = chunk_at(bytes, at);
    if (chunk.name == "IDAT" || chunk.name == "IEND") return false;
    if (chunk.length > bytes.size() - at - 8) return true;
    at += chunk.length + 12;
  }
  return false;
}

bool open_png(PngReader& reader) {
  if (is_cut_before_pixels(reader.rest)) {
    std::strcpy(reader.message.data(), kCutShort);
    return false;
  }
  reader.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, png_failed, ignore_png_warning);
  if (reader.png == nullptr) return false;
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) return false;
  png_set_read_fn(reader.png, &reader, take_png_bytes);
  // The size is checked by our own limit.
  png_set_user_limits(reader.png, 0x7fffffff, 0x7fffffff);
  // Texts are unpacked, to as much as 8 MB each, and kept.
  png_set_chunk_cache_max(reader.png, 32);
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_info(reader.png, reader.info);
  return true;
}

/// How rows are taken: grey of 16 bits, a palette's indices, or RGB.
enum class PngRows { rgb, grey16, indices };

/// What is done to the rows; alpha is dropped, not blended.
PngRows ask_for_rows(png_structp png, png_infop info) {
  const auto depth = png_get_bit_depth(png, info);
  const auto colour = png_get_color_type(png, info);
  if (colour == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(png);
    return PngRows::indices;
  }
  if (colour == PNG_COLOR_TYPE_GRAY && depth == 16) return PngRows::grey16;
  if (depth == 16) png_set_strip_16(png);
  if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if ((colour & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  return PngRows::rgb;
}

/// Starts the rows and says how many bytes each has.
bool start_png_rows(PngReader& reader, PngRows& rows, size_t& bytes_per_row) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  rows = ask_for_rows(reader.png, reader.info);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  bytes_per_row = png_get_rowbytes(reader.png, reader.info);
  return true;
}

bool read_png_rows(PngReader& reader, png_bytep* rows) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_image(reader.png, rows);
  return true;
}

using Palette = std::array<std::array<uint8_t, 3>, 256>;

/// Indices beyond the palette are black, as in Pillow.
Palette png_palette(const PngReader& reader) {
  Palette palette{};
  png_colorp entries = nullptr;
  int count = 0;
  if (png_get_PLTE(reader.png, reader.info, &entries, &count) == 0) return palette;
  for (int i = 0; i < count && i < 256; ++i)
    palette[size_t(i)] = {entries[i].red, entries[i].green, entries[i].blue};
  return palette;
}

void spread_row(const uint8_t* from, PngRows kind, const Palette& palette, int64_t width,
                uint8_t* to) {
  for (int64_t x = 0; x < width; ++x, to += 3) {
    if (kind == PngRows::indices) {
      std::copy_n(palette[from[x]].data(), 3, to);
    } else {
      const uint8_t grey = from[2 * x] != 0 ? 255 : from[2 * x + 1];
      to[0] = to[1] = to[2] = grey;
    }
  }
}

/// The bytes of pairs of hexadecimal digits; nothing when there is anything else.
std::string bytes_of_hex(std::string_view digits) {
  std::string bytes;
  int high = -1;
  for (const char digit : digits) {
    if (digit == '\n') continue;
    const auto value = std::string_view("0123456789abcdef").find(char(digit | 0x20));
    if (value == std::string_view::npos || digit < '0') return {};
    if (high >= 0) bytes += static_cast<char>(high << 4 | int(value));
    high = high >= 0 ? -1 : int(value);
  }
  return bytes;
}

/// EXIF as ImageMagick writes it, and Pillow reads it: a text with a name, a length and digits, in
/// lines.
std::string exif_in_text(const PngReader& reader) {
  png_textp texts = nullptr;
  const auto count = png_get_text(reader.png, reader.info, &texts, nullptr);
  for (int i = 0; i < count; ++i) {
    if (texts[i].key == nullptr || texts[i].text == nullptr ||
        std::string_view(texts[i].key) != "Raw profile type exif")
      continue;
    std::string_view rest = texts[i].text;
    for (int line = 0; line < 3; ++line)
      rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
    return bytes_of_hex(rest);
  }
  return {};
}

}  // namespace

StoredImage read_png_header(std::string_view bytes, const ImageDecodeOptions& options) {
  PngReader reader(bytes);
  if (!open_png(reader)) throw_damaged_image(options, reader.message.data());
  StoredImage image{.width = png_get_image_width(reader.png, reader.info),
                    .height = png_get_image_height(reader.png, reader.info)};
  // The chunk is looked up in the file, which outlives the reader.
  size_t at = 8;
  while (bytes.size() - at >= 12) {
    const auto [name, length] = chunk_at(bytes, at);
    if (length > bytes.size() - at - 12) break;
    if (name == "eXIf") image.exif = bytes.substr(at + 8, length);
    at += length + 12;
  }
  if (image.exif.empty()) image.unpacked_exif = exif_in_text(reader);
  return image;
}

torch::Tensor png_pixels(std::string_view bytes, const ImageDecodeOptions& options) {
  PngReader reader(bytes);
  PngRows kind = PngRows::rgb;
  size_t bytes_per_row = 0;
  if (!open_png(reader) || !start_png_rows(reader, kind, bytes_per_row))
    throw_damaged_image(options, reader.message.data());
  const int64_t width = png_get_image_width(reader.png, reader.info),
                height = png_get_image_height(reader.png, reader.info);
  auto image = empty_image(width, height);
  auto* pixels = image.data_ptr<uint8_t>();
  std::vector<uint8_t> raw(kind == PngRows::rgb ? 0 : bytes_per_row * size_t(height));
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y)
    rows[y] =
        kind == PngRows::rgb ? pixels + y * size_t(width) * 3 : raw.data() + y * bytes_per_row;
  if (!read_png_rows(reader, rows.data())) throw_damaged_image(options, reader.message.data());
  if (kind == PngRows::rgb) return image;
  const auto palette = png_palette(reader);
  for (size_t y = 0; y < rows.size(); ++y)
    spread_row(rows[y], kind, palette, width, pixels + y * size_t(width) * 3);
  return image;
}

}  // namespace gradus::vision
