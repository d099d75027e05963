#include "vision/decoders.h"

namespace gradus::vision {
namespace {

/// Numbers of a TIFF structure, in its own byte order. Reads beyond the end give 0.
class TiffReader {
 public:
  explicit TiffReader(std::string_view block) : block_(block) {
    big_endian_ = block.starts_with("MM");
  }
  bool is_valid() const {
    return (block_.starts_with("II") || block_.starts_with("MM")) && number(2, 2) == 42;
  }
  uint32_t number(size_t at, size_t bytes) const {
    if (at > block_.size() || block_.size() - at < bytes) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const auto place = big_endian_ ? at + i : at + bytes - 1 - i;
      value = value << 8 | static_cast<unsigned char>(block_[place]);
    }
    return value;
  }

 private:
  std::string_view block_;
  bool big_endian_ = false;
};

constexpr uint32_t kOrientationTag = 0x0112;

/// Bytes of a whole number by TIFF's number of its type; 0 for other types. The format asks for an
/// unsigned number of two bytes; some write four.
size_t bytes_of_whole_number(uint32_t type) {
  return type == 3 || type == 8 ? 2 : type == 4 || type == 9 ? 4 : 0;
}

}  // namespace

int exif_orientation(std::string_view block) {
  if (block.starts_with(std::string_view("Exif\0\0", 6))) block.remove_prefix(6);
  const TiffReader tiff(block);
  if (!tiff.is_valid()) return 1;
  const size_t directory = tiff.number(4, 4);
  const auto entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const auto entry = directory + 2 + i * 12;
    if (entry + 12 > block.size()) break;
    const auto bytes = bytes_of_whole_number(tiff.number(entry + 2, 2));
    if (tiff.number(entry, 2) != kOrientationTag || bytes == 0) continue;
    const auto value = tiff.number(entry + 8, bytes);
    return value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

torch::Tensor upright(const torch::Tensor& image, int orientation) {
  switch (orientation) {
    case 2: return image.flip({1});
    case 3: return image.flip({0, 1});
    case 4: return image.flip({0});
    case 5: return image.transpose(0, 1).contiguous();
    case 6: return image.flip({0}).transpose(0, 1).contiguous();
    case 7: return image.flip({0, 1}).transpose(0, 1).contiguous();
    case 8: return image.flip({1}).transpose(0, 1).contiguous();
    default: return image;
  }
}

}  // namespace gradus::vision
