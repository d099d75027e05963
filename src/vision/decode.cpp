#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/vision/decode.h>

#include <ATen/ops/empty.h>

#include "vision/decoders.h"

namespace gradus {
namespace vision {
namespace {

struct Decoder {
  ImageFormat format;
  StoredImage (*header)(std::string_view, const ImageDecodeOptions&);
  torch::Tensor (*pixels)(std::string_view, const ImageDecodeOptions&);
};
constexpr Decoder kDecoders[] = {{ImageFormat::png, read_png_header, png_pixels},
                                 {ImageFormat::jpeg, read_jpeg_header, jpeg_pixels},
                                 {ImageFormat::webp, read_webp_header, webp_pixels}};

const Decoder& decoder_for(std::string_view bytes, const ImageDecodeOptions& options) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return kDecoders[0];
  if (bytes.starts_with("\xff\xd8\xff"sv)) return kDecoders[1];
  if (bytes.starts_with("RIFF"sv) && bytes.substr(0, 12).ends_with("WEBP"sv)) return kDecoders[2];
  throw Error("G-IMG-1", ErrorKind::data,
              fmt::format("{} is not an image that can be decoded: it begins like no PNG, JPEG or "
                          "WebP file",
                          options.name),
              "Convert it to one of these formats, or leave it out (--skip_bad_rows).");
}

/// The header with the size as shown, and the decoder.
struct Known {
  const Decoder* decoder;
  ImageInfo info;
};

Known look_at(std::string_view bytes, const ImageDecodeOptions& options) {
  const auto& decoder = decoder_for(bytes, options);
  const auto stored = decoder.header(bytes, options);
  check_image_size(stored.width, stored.height, options);
  const auto orientation =
      exif_orientation(stored.unpacked_exif.empty() ? stored.exif : stored.unpacked_exif);
  const bool turned = orientation >= 5;
  return {&decoder,
          {.format = decoder.format,
           .width = turned ? stored.height : stored.width,
           .height = turned ? stored.width : stored.height,
           .orientation = orientation}};
}

}  // namespace

void throw_damaged_image(const ImageDecodeOptions& options, const std::string& reason) {
  throw Error("G-IMG-2", ErrorKind::data, fmt::format("{} is damaged: {}", options.name, reason),
              "Fetch or write the file again, or leave it out (--skip_bad_rows).");
}

void check_image_size(int64_t width, int64_t height, const ImageDecodeOptions& options) {
  if (width < 1 || height < 1)
    throw_damaged_image(options, fmt::format("its size is {} x {} pixels", width, height));
  if (width > options.max_pixels / height)
    throw Error("G-IMG-3", ErrorKind::data,
                fmt::format("{} says that it has {} x {} pixels, at most {} are decoded",
                            options.name, width, height, options.max_pixels),
                "Make it smaller, or leave it out (--skip_bad_rows).");
}

torch::Tensor empty_image(int64_t width, int64_t height) {
  return at::empty({height, width, 3}, at::kByte);
}

}  // namespace vision

ImageInfo image_info(std::string_view bytes, const ImageDecodeOptions& options) {
  return vision::look_at(bytes, options).info;
}

torch::Tensor decode_image(std::string_view bytes, const ImageDecodeOptions& options) {
  const auto known = vision::look_at(bytes, options);
  return vision::upright(known.decoder->pixels(bytes, options), known.info.orientation);
}

ImagePart decode_image_part(std::string_view bytes, const CropBox& part,
                            const ImageDecodeOptions& options) {
  const auto known = vision::look_at(bytes, options);
  const auto& info = known.info;
  if (!(part.top >= 0 && part.left >= 0 && part.height > 0 && part.width > 0 &&
        part.top + part.height <= double(info.height) &&
        part.left + part.width <= double(info.width)))
    throw Error("G-IMG-8", ErrorKind::data,
                fmt::format("{} has {} x {} pixels: the part of {} x {} at column {}, row {} is "
                            "not inside",
                            options.name, info.width, info.height, part.width, part.height,
                            part.left, part.top),
                "Give a part as random_resized_crop returns it for the size of the image.");
  if (info.format == ImageFormat::jpeg && info.orientation == 1)
    return vision::jpeg_part(bytes, part, options);
  auto pixels = vision::upright(known.decoder->pixels(bytes, options), info.orientation);
  const auto height = pixels.size(0), width = pixels.size(1);
  return {.pixels = std::move(pixels), .height = height, .width = width};
}

}  // namespace gradus
