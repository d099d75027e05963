#include <gradus/core/error.h>
#include <gradus/vision/decode.h>
#include <zlib.h>

#include <string>

#include "fuzz/fuzz_target.h"

namespace {

/// Damaged chunks of a PNG file would be refused for their checksums before anybody reads them.
void mend_checksums(std::string& file) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(file[at + i]);
    return value;
  };
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = number(at);
    if (length > file.size() - at - 12) return;
    const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(file.data()) + at + 4,
                             static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i)
      file[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += length + 12;
  }
}

}  // namespace

/// Any bytes give an image of the size that its header says, or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (file.starts_with("\x89PNG")) mend_checksums(file);
  gradus::ImageDecodeOptions options{.name = "input", .max_pixels = 1 << 20};
  for (const int64_t shrink : {1, 4}) {
    options.shrink = shrink;
    try {
      const auto info = gradus::image_info(file, options);
      const auto image = gradus::decode_image(file, options);
      const bool is_whole = image.size(0) == info.height && image.size(1) == info.width;
      if (!is_whole && (shrink == 1 || info.format != gradus::ImageFormat::jpeg)) __builtin_trap();
      const auto height = double(info.height), width = double(info.width);
      const auto part = gradus::decode_image_part(
          file, {height / 3, width / 4, height - height / 2, width / 2}, options);
      if (part.top + part.pixels.size(0) > part.height || part.height != image.size(0) ||
          part.left + part.pixels.size(1) > part.width || part.width != image.size(1))
        __builtin_trap();
    } catch (const gradus::Error&) {
    }
  }
  return 0;
}
