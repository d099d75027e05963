#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace gradus {

// The transforms of torchvision on images in memory, uint8 (height, width, 3) as `decode_image`
// gives them. Pixels and random draws are those of torchvision on Pillow images. All functions are
// thread-safe.

/// How pixels are weighed when an image is resized; the numbers are Pillow's.
enum class ResizeFilter {
  nearest = 0,   ///< The pixel in the middle of what becomes one.
  lanczos = 1,   ///< Sharpest.
  bilinear = 2,  ///< What torchvision takes by default.
  bicubic = 3,   ///< Sharper.
  box = 4,       ///< Means.
  hamming = 5    ///< Between box and bicubic.
};

/// A rectangle of an image, in pixels from its upper left corner.
struct CropBox {
  double top = 0;     ///< First row.
  double left = 0;    ///< First column.
  double height = 0;  ///< Rows.
  double width = 0;   ///< Columns.
};

/// Resizes an image as `PIL.Image.resize` does: the filter grows with the reduction, so that no
/// pixel is passed over. The rows of `image` may lie further apart than they are long (`crop_image`
/// gives such views). Of `part`, when it is given, only that rectangle is resized; its borders may
/// lie between pixels. Throws `Error` G-IMG-8 for a tensor of another kind or an empty size.
torch::Tensor resize_image(const torch::Tensor& image, int64_t height, int64_t width,
                           ResizeFilter filter = ResizeFilter::bilinear,
                           const std::optional<CropBox>& part = std::nullopt);

/// A view of a rectangle, which must lie inside.
torch::Tensor crop_image(const torch::Tensor& image, int64_t top, int64_t left, int64_t height,
                         int64_t width);
/// The middle of an image. Where the image is smaller it gets a black border, as in torchvision.
torch::Tensor center_crop(const torch::Tensor& image, int64_t height, int64_t width);

/// Height and width when the shorter side becomes `shortest_edge`: the longer one is cut to whole
/// pixels, as in torchvision's `Resize(int)`.
std::pair<int64_t, int64_t> size_by_shortest_edge(int64_t height, int64_t width,
                                                  int64_t shortest_edge);

/// The ranges of `random_resized_crop`.
struct RandomCropOptions {
  std::array<double, 2> scale = {0.08, 1.0};             ///< Share of the image's area.
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< Width over height.
};

/// The rectangle that `torchvision.transforms.RandomResizedCrop` takes. For each of up to ten
/// attempts it draws an area and a ratio (`uniform_`), and, when they fit, top and left
/// (`randint`); then it gives up and takes the middle.
CropBox random_resized_crop(int64_t height, int64_t width, at::Generator& generator,
                            const RandomCropOptions& options = {});
/// Whether `RandomHorizontalFlip` mirrors: one draw of `torch.rand(1)`.
bool random_flip(at::Generator& generator, double probability = 0.5);

/// Turns bytes into numbers: (byte / 255 - mean) / std per channel, in float32 and in this order,
/// as `ToTensor` and `Normalize` do.
class PixelScale {
 public:
  /// byte / 255.
  PixelScale();
  /// With `Normalize(mean, std)`.
  PixelScale(const std::array<double, 3>& mean, const std::array<double, 3>& std);
  /// byte · `factor` first, as image processors do (`rescale_factor`).
  PixelScale(double factor, const std::array<double, 3>& mean, const std::array<double, 3>& std);

  /// Writes an image as float32 (3, height, width) to `to`, mirrored if `flip`.
  void write(const torch::Tensor& image, bool flip, float* to) const;
  /// The same as a new tensor.
  torch::Tensor operator()(const torch::Tensor& image, bool flip = false) const;

 private:
  std::array<std::array<float, 256>, 3> table_;
};

}  // namespace gradus
