#pragma once

#include <gradus/vision/decode.h>

#include <optional>
#include <string>
#include <string_view>

// Two functions per format, each pair in a file of its own. The header's size and the pixels are
// those that are stored, before the image is turned upright.
namespace gradus::vision {

[[noreturn]] void throw_damaged_image(const ImageDecodeOptions& options, const std::string& reason);
/// Throws G-IMG-3 for a size beyond the limit, G-IMG-2 for none.
void check_image_size(int64_t width, int64_t height, const ImageDecodeOptions& options);
/// Memory for an image, (height, width, 3).
torch::Tensor empty_image(int64_t width, int64_t height);

/// A header, and the EXIF block where the file has one.
struct StoredImage {
  int64_t width = 0, height = 0;
  std::string_view exif = {};
  std::string unpacked_exif = {};  ///< in place of `exif`, where the file has it packed
};

StoredImage read_png_header(std::string_view bytes, const ImageDecodeOptions& options);
torch::Tensor png_pixels(std::string_view bytes, const ImageDecodeOptions& options);
StoredImage read_jpeg_header(std::string_view bytes, const ImageDecodeOptions& options);
torch::Tensor jpeg_pixels(std::string_view bytes, const ImageDecodeOptions& options);
/// `decode_image_part` of an upright file.
ImagePart jpeg_part(std::string_view bytes, const CropBox& part, const ImageDecodeOptions& options);
StoredImage read_webp_header(std::string_view bytes, const ImageDecodeOptions& options);
torch::Tensor webp_pixels(std::string_view bytes, const ImageDecodeOptions& options);

/// The orientation that an EXIF block names (a TIFF structure); 1 when it names none, or nonsense.
int exif_orientation(std::string_view block);
/// The image turned and mirrored so that it is upright.
torch::Tensor upright(const torch::Tensor& image, int orientation);

}  // namespace gradus::vision
