#include <cstddef>
#include <cstdio>  // before jpeglib.h, which uses FILE

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <vector>

#include "vision/decoders.h"

// Other libraries of this name, and libjpeg-turbo before 2.1, decode the whole image.
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2001000
#define GRADUS_CUTS_JPEG
#endif

namespace gradus::vision {
namespace {

/// A progressive file may repeat its scans without end; nobody writes this many.
constexpr int kMostScans = 500;

/// An error of libjpeg jumps back to whoever set `jump`, so nothing with a destructor may be made
/// between the two.
struct JpegReader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  bool is_cut_short = false;
  bool is_open = false;

  JpegReader() = default;
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() {
    if (is_open) jpeg_destroy_decompress(&jpeg);
  }
};

JpegReader& reader_of(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }

[[noreturn]] void jpeg_failed(j_common_ptr jpeg) {
  auto& reader = reader_of(jpeg);
  (*jpeg->err->format_message)(jpeg, reader.message.data());
  std::longjmp(reader.jump, 1);
}

/// Warnings are ignored as in Pillow, but for the end of the file, after which libjpeg would go on
/// with grey.
void note_jpeg_warning(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) reader_of(jpeg).is_cut_short = true;
}

void watch_scans(j_common_ptr jpeg) {
  auto& reader = reader_of(jpeg);
  if (!jpeg->is_decompressor || reader.jpeg.input_scan_number <= kMostScans) return;
  std::snprintf(reader.message.data(), reader.message.size(), "it has more than %d scans",
                kMostScans);
  std::longjmp(reader.jump, 1);
}

bool open_jpeg(JpegReader& reader, std::string_view bytes) {
  reader.jpeg.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = jpeg_failed;
  reader.errors.emit_message = note_jpeg_warning;
  reader.jpeg.client_data = &reader;
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&reader.jpeg);
  reader.is_open = true;
  reader.progress.progress_monitor = watch_scans;
  reader.jpeg.progress = &reader.progress;
  jpeg_mem_src(&reader.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&reader.jpeg, TRUE);
  return true;
}

bool start_jpeg(JpegReader& reader, int64_t shrink) {
  if (setjmp(reader.jump) != 0) return false;
  auto& jpeg = reader.jpeg;
  const bool is_cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = is_cmyk                                  ? JCS_CMYK
                         : jpeg.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE
                                                                  : JCS_RGB;
  jpeg.scale_num = 1;
  jpeg.scale_denom = static_cast<unsigned int>(shrink);
  jpeg_start_decompress(&jpeg);
  return true;
}

/// A rectangle in whole pixels.
struct PixelBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

/// So many pixels around a part are decoded with it: colours are smoothed across blocks, so pixels
/// at the border of what is decoded differ.
constexpr double kPartMargin = 3;

/// The rows and columns of the result that `part` of the whole image lies in.
PixelBox box_around(const CropBox& part, const jpeg_decompress_struct& jpeg) {
  const auto height = int64_t{jpeg.output_height}, width = int64_t{jpeg.output_width};
  const double down = double(height) / double(jpeg.image_height),
               across = double(width) / double(jpeg.image_width);
  const auto first = [](double place) {
    return std::max<int64_t>(0, int64_t(std::floor(place - kPartMargin)));
  };
  const auto last = [](double place, int64_t most) {
    return std::min(most, int64_t(std::ceil(place + kPartMargin)));
  };
  PixelBox box{.top = first(part.top * down), .left = first(part.left * across)};
  box.height = last((part.top + part.height) * down, height) - box.top;
  box.width = last((part.left + part.width) * across, width) - box.left;
  return box;
}

/// Whether libjpeg can leave out what is outside a part. A progressive file is unpacked as a whole
/// before the first row is made.
bool can_cut_jpeg([[maybe_unused]] JpegReader& reader) {
#ifdef GRADUS_CUTS_JPEG
  return !jpeg_has_multiple_scans(&reader.jpeg);
#else
  return false;
#endif
}

/// Goes to the first row of `box`. Its columns become those that are decoded: blocks are whole.
bool cut_jpeg([[maybe_unused]] JpegReader& reader, [[maybe_unused]] PixelBox& box) {
#ifdef GRADUS_CUTS_JPEG
  auto left = static_cast<JDIMENSION>(box.left), width = static_cast<JDIMENSION>(box.width);
  if (setjmp(reader.jump) != 0) return false;
  jpeg_crop_scanline(&reader.jpeg, &left, &width);
  box.left = left;
  box.width = width;
  jpeg_skip_scanlines(&reader.jpeg, static_cast<JDIMENSION>(box.top));
#endif
  return true;
}

/// Reads the next rows up to number `end`; they lie `stride` bytes apart from `rows` on.
bool read_jpeg_rows(JpegReader& reader, JDIMENSION end, uint8_t* rows, size_t stride) {
  if (setjmp(reader.jump) != 0) return false;
  auto& jpeg = reader.jpeg;
  const auto begin = jpeg.output_scanline;
  while (jpeg.output_scanline < end && !reader.is_cut_short) {
    JSAMPROW several[8];
    JDIMENSION count = 0;
    for (; count < 8 && jpeg.output_scanline + count < end; ++count)
      several[count] = rows + size_t(jpeg.output_scanline + count - begin) * stride;
    jpeg_read_scanlines(&jpeg, several, count);
  }
  return true;
}

/// The first block of Exif before the pixels. libjpeg would keep all such blocks in a list that it
/// walks for each one: minutes for a small file that consists of them.
std::string_view exif_of(std::string_view bytes) {
  constexpr uint8_t kFill = 0xff, kStart = 0xd8, kEnd = 0xd9, kScan = 0xda;
  constexpr std::string_view kExif("Exif\0\0", 6);
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  for (size_t at = 2; at + 4 <= bytes.size();) {
    if (byte(at) != kFill || byte(at + 1) == kFill) {  // filled up, or damaged: as libjpeg
      ++at;
      continue;
    }
    const auto marker = byte(at + 1);
    at += 2;
    if (marker == kScan || marker == kEnd) break;
    const bool stands_alone = marker <= 1 || (marker >= 0xd0 && marker <= kStart);
    if (stands_alone) continue;
    const auto length = size_t{byte(at)} << 8 | byte(at + 1);
    if (length < 2) break;
    const auto block = bytes.substr(at + 2, length - 2);
    if (marker == JPEG_APP0 + 1 && block.starts_with(kExif)) return block;
    at += length;
  }
  return {};
}

[[noreturn]] void throw_jpeg_damage(const JpegReader& reader, const ImageDecodeOptions& options) {
  throw_damaged_image(options,
                      reader.is_cut_short ? "the file is cut short" : reader.message.data());
}

/// Adobe's files hold inverted CMYK, and Pillow takes every file for one of them. The conversion is
/// Pillow's too: (255 - k)(255 - c) / 255, rounded.
void rgb_of_cmyk(const uint8_t* from, int64_t pixels, uint8_t* to) {
  for (int64_t i = 0; i < pixels; ++i, from += 4, to += 3) {
    const int white = from[3];  // 255 - black
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - from[c]) * white + 128;
      to[c] = static_cast<uint8_t>(white - ((product + (product >> 8)) >> 8));
    }
  }
}

/// The next `height` rows, in three colours.
torch::Tensor pixels_of_rows(JpegReader& reader, int64_t width, int64_t height,
                             const ImageDecodeOptions& options) {
  const int64_t channels = reader.jpeg.output_components;
  auto image = empty_image(width, height);
  auto* pixels = image.data_ptr<uint8_t>();
  std::vector<uint8_t> raw(channels == 3 ? 0 : size_t(width * height * channels));
  auto* rows = channels == 3 ? pixels : raw.data();
  const auto end = reader.jpeg.output_scanline + static_cast<JDIMENSION>(height);
  if (!read_jpeg_rows(reader, end, rows, size_t(width * channels)) || reader.is_cut_short)
    throw_jpeg_damage(reader, options);
  if (channels == 4) rgb_of_cmyk(raw.data(), width * height, pixels);
  if (channels == 1)
    for (int64_t i = 0; i < width * height; ++i) std::fill_n(pixels + 3 * i, 3, raw[size_t(i)]);
  return image;
}

}  // namespace

StoredImage read_jpeg_header(std::string_view bytes, const ImageDecodeOptions& options) {
  JpegReader reader;
  if (!open_jpeg(reader, bytes)) throw_jpeg_damage(reader, options);
  return {
      .width = reader.jpeg.image_width, .height = reader.jpeg.image_height, .exif = exif_of(bytes)};
}

torch::Tensor jpeg_pixels(std::string_view bytes, const ImageDecodeOptions& options) {
  JpegReader reader;
  if (!open_jpeg(reader, bytes) || !start_jpeg(reader, options.shrink))
    throw_jpeg_damage(reader, options);
  return pixels_of_rows(reader, reader.jpeg.output_width, reader.jpeg.output_height, options);
}

ImagePart jpeg_part(std::string_view bytes, const CropBox& part,
                    const ImageDecodeOptions& options) {
  JpegReader reader;
  if (!open_jpeg(reader, bytes) || !start_jpeg(reader, options.shrink))
    throw_jpeg_damage(reader, options);
  ImagePart found{.height = reader.jpeg.output_height, .width = reader.jpeg.output_width};
  PixelBox box{.height = found.height, .width = found.width};
  if (can_cut_jpeg(reader)) {
    box = box_around(part, reader.jpeg);
    if (!cut_jpeg(reader, box) || reader.is_cut_short) throw_jpeg_damage(reader, options);
  }
  found.top = box.top;
  found.left = box.left;
  found.pixels = pixels_of_rows(reader, box.width, box.height, options);
  return found;
}

}  // namespace gradus::vision
