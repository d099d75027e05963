#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/vision/transforms.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace gradus {
namespace {

/// Python's `int(round(x))`: halves to even.
int64_t round_as_python(double x) { return int64_t(std::nearbyint(x)); }

double draw_uniform(double from, double to, at::Generator& generator) {
  return at::empty({1}, at::kFloat).uniform_(from, to, generator).item<double>();
}

int64_t draw_integer(int64_t below, at::Generator& generator) {
  return at::randint(below, {1}, generator, at::kLong).item<int64_t>();
}

}  // namespace

torch::Tensor crop_image(const torch::Tensor& image, int64_t top, int64_t left, int64_t height,
                         int64_t width) {
  return image.narrow(0, top, height).narrow(1, left, width);
}

torch::Tensor center_crop(const torch::Tensor& image, int64_t height, int64_t width) {
  auto source = image;
  const int64_t rows = image.size(0), columns = image.size(1);
  if (height > rows || width > columns) {
    const int64_t above = std::max<int64_t>(0, (height - rows) / 2),
                  before = std::max<int64_t>(0, (width - columns) / 2);
    source = at::zeros({std::max(rows, height), std::max(columns, width), 3}, at::kByte);
    crop_image(source, above, before, rows, columns).copy_(image);
  }
  return crop_image(source, round_as_python(double(source.size(0) - height) / 2.0),
                    round_as_python(double(source.size(1) - width) / 2.0), height, width);
}

std::pair<int64_t, int64_t> size_by_shortest_edge(int64_t height, int64_t width,
                                                  int64_t shortest_edge) {
  const auto shorter = std::min(height, width), longer = std::max(height, width);
  const auto other = int64_t(double(shortest_edge * longer) / double(shorter));
  return width <= height ? std::pair(other, shortest_edge) : std::pair(shortest_edge, other);
}

CropBox random_resized_crop(int64_t height, int64_t width, at::Generator& generator,
                            const RandomCropOptions& options) {
  const double area = double(height * width);
  // As tensors of float32, in which torchvision computes them.
  const double low = std::log(float(options.ratio[0])), high = std::log(float(options.ratio[1]));
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * draw_uniform(options.scale[0], options.scale[1], generator);
    const double ratio =
        at::empty({1}, at::kFloat).uniform_(low, high, generator).exp_().item<double>();
    const auto w = round_as_python(std::sqrt(wanted * ratio)),
               h = round_as_python(std::sqrt(wanted / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const auto top = draw_integer(height - h + 1, generator);
    const auto left = draw_integer(width - w + 1, generator);
    return {double(top), double(left), double(h), double(w)};
  }
  const double given = double(width) / double(height);
  int64_t w = width, h = height;
  if (given < options.ratio[0]) h = round_as_python(double(w) / options.ratio[0]);
  if (given > options.ratio[1]) w = round_as_python(double(h) * options.ratio[1]);
  return {double((height - h) / 2), double((width - w) / 2), double(h), double(w)};
}

bool random_flip(at::Generator& generator, double probability) {
  return at::rand({1}, generator, at::kFloat).item<double>() < probability;
}

PixelScale::PixelScale() {
  for (auto& channel : table_)
    for (size_t byte = 0; byte < 256; ++byte) channel[byte] = float(byte) / 255.0F;
}

PixelScale::PixelScale(const std::array<double, 3>& mean, const std::array<double, 3>& std)
    : PixelScale() {
  for (size_t c = 0; c < 3; ++c)
    for (auto& value : table_[c]) value = (value - float(mean[c])) / float(std[c]);
}

PixelScale::PixelScale(double factor, const std::array<double, 3>& mean,
                       const std::array<double, 3>& std) {
  for (size_t c = 0; c < 3; ++c)
    for (size_t byte = 0; byte < 256; ++byte)
      table_[c][byte] = (float(double(byte) * factor) - float(mean[c])) / float(std[c]);
}

void PixelScale::write(const torch::Tensor& image, bool flip, float* to) const {
  const int64_t height = image.size(0), width = image.size(1), plane = height * width;
  const int64_t step = flip ? -3 : 3;
  for (int64_t y = 0; y < height; ++y) {
    const auto* from = image.data_ptr<uint8_t>() + y * image.stride(0) + (flip ? 3 * width - 3 : 0);
    float *red = to + y * width, *green = red + plane, *blue = green + plane;
    for (int64_t x = 0; x < width; ++x, from += step) {
      red[x] = table_[0][from[0]];
      green[x] = table_[1][from[1]];
      blue[x] = table_[2][from[2]];
    }
  }
}

torch::Tensor PixelScale::operator()(const torch::Tensor& image, bool flip) const {
  auto values = at::empty({3, image.size(0), image.size(1)}, at::kFloat);
  write(image, flip, values.data_ptr<float>());
  return values;
}

}  // namespace gradus
