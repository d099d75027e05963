#pragma once

#include <gradus/vision/transforms.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace gradus {

/// The file formats that can be decoded.
enum class ImageFormat { png, jpeg, webp };

/// The largest image that is decoded: twice what Pillow warns about, where Pillow refuses it, too.
constexpr int64_t kMostImagePixels = 178'956'970;

/// What the header of an image file says.
struct ImageInfo {
  ImageFormat format = ImageFormat::png;  ///< By the first bytes, not by the file's name.
  int64_t width = 0;                      ///< As shown, after `orientation` was applied.
  int64_t height = 0;                     ///< As shown, after `orientation` was applied.
  int orientation = 1;                    ///< From EXIF, 1 to 8; 1 is upright.
};

/// Options of `image_info` and `decode_image`.
struct ImageDecodeOptions {
  std::string name = "the image";         ///< For messages: a file, or a row of a table.
  int64_t max_pixels = kMostImagePixels;  ///< A larger image is an error (G-IMG-3).
  /// JPEG only: decode to 1/2, 1/4 or 1/8 of the size, in a fraction of the time. Other formats
  /// ignore it.
  int64_t shrink = 1;
};

/// Reads the header of a PNG, JPEG or WebP file that lies in memory.
///
/// Throws `Error` G-IMG-1 for another format, G-IMG-2 for a damaged file, G-IMG-3 for too many
/// pixels. Thread-safe, as is `decode_image`.
ImageInfo image_info(std::string_view bytes, const ImageDecodeOptions& options = {});

/// Decodes a PNG, JPEG or WebP file to uint8 (height, width, 3), red first.
///
/// The pixels are those of Pillow's `convert("RGB")` after `exif_transpose`: grey is repeated, a
/// palette is looked up, alpha is dropped, CMYK is converted, of 16-bit colours the upper byte
/// counts, and 16-bit grey above 255 is white. Of an animation the first frame is taken.
///
/// Throws as `image_info`. A file that ends early, or whose checksums do not fit, is damaged: there
/// are no half images.
torch::Tensor decode_image(std::string_view bytes, const ImageDecodeOptions& options = {});

/// A part of an image, decoded.
struct ImagePart {
  torch::Tensor pixels = {};  ///< uint8 (height, width, 3).
  int64_t top = 0;            ///< The row of the whole that is the first of `pixels`.
  int64_t left = 0;           ///< The column of the whole that is the first of `pixels`.
  int64_t height = 0;         ///< Rows of the whole, after `ImageDecodeOptions::shrink`.
  int64_t width = 0;          ///< Columns of the whole, after `ImageDecodeOptions::shrink`.
};

/// Decodes the rectangle `part`, in pixels of the upright image that is not shrunk, and what lies
/// around it as far as that is easier. The pixels of the rectangle, and of two rows and columns
/// around it, are those of `decode_image`.
///
/// Of an upright JPEG that is not progressive the rows below the part are not read, those above it
/// and the columns beside it only unpacked. So damage outside the part may stay unnoticed. Every
/// other image is decoded as a whole. Throws as `decode_image`, and G-IMG-8 for a part that does
/// not lie inside the image.
ImagePart decode_image_part(std::string_view bytes, const CropBox& part,
                            const ImageDecodeOptions& options = {});

}  // namespace gradus
