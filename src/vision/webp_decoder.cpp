#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "vision/decoders.h"

namespace gradus::vision {
namespace {

const uint8_t* data_of(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

/// Frames of an animation are drawn on a canvas, which only the demuxer knows how to do.
torch::Tensor first_webp_frame(std::string_view bytes, const ImageDecodeOptions& options) {
  WebPAnimDecoderOptions settings;
  WebPAnimDecoderOptionsInit(&settings);
  settings.color_mode = MODE_RGBA;
  const WebPData data{data_of(bytes), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
      WebPAnimDecoderNew(&data, &settings), WebPAnimDecoderDelete);
  WebPAnimInfo info{};
  uint8_t* canvas = nullptr;
  int timestamp = 0;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0 ||
      WebPAnimDecoderGetNext(decoder.get(), &canvas, &timestamp) == 0)
    throw_damaged_image(options, "its first frame cannot be decoded");
  auto image = empty_image(info.canvas_width, info.canvas_height);
  auto* to = image.data_ptr<uint8_t>();
  for (int64_t i = 0; i < image.numel() / 3; ++i) std::copy_n(canvas + 4 * i, 3, to + 3 * i);
  return image;
}

}  // namespace

StoredImage read_webp_header(std::string_view bytes, const ImageDecodeOptions& options) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    throw_damaged_image(options, "its header cannot be read");
  StoredImage image{.width = features.width, .height = features.height};
  // Chunks of an extended file: four letters, a length, the content, padded to even.
  for (size_t at = 12; at + 8 <= bytes.size();) {
    size_t length = 0;
    for (size_t i = 4; i-- > 0;)
      length = length << 8 | static_cast<unsigned char>(bytes[at + 4 + i]);
    if (length > bytes.size() - at - 8) break;
    if (bytes.substr(at, 4) == "EXIF") image.exif = bytes.substr(at + 8, length);
    at += 8 + length + (length & 1);
  }
  return image;
}

torch::Tensor webp_pixels(std::string_view bytes, const ImageDecodeOptions& options) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    throw_damaged_image(options, "its header cannot be read");
  if (features.has_animation != 0) return first_webp_frame(bytes, options);
  auto image = empty_image(features.width, features.height);
  const auto stride = features.width * 3;
  if (WebPDecodeRGBInto(data_of(bytes), bytes.size(), image.data_ptr<uint8_t>(),
                        size_t(image.numel()), stride) == nullptr)
    throw_damaged_image(options, "its pixels cannot be decoded, or the file is cut short");
  return image;
}

}  // namespace gradus::vision
