#include <gradus/core/error.h>
#include <gradus/data/images.h>

#include "data/idx_file.h"
#include "data/index_check.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>

namespace gradus {
namespace {

class ImageDataset final : public Dataset {
 public:
  ImageDataset(data::IdxFile images, std::string labels, double mean, double std)
      : images_(std::move(images)), labels_(std::move(labels)) {
    for (size_t byte = 0; byte < table_.size(); ++byte)
      table_[byte] = static_cast<float>((static_cast<double>(byte) / 255.0 - mean) / std);
    pixels_ = images_.shape[1] * images_.shape[2];
  }

  int64_t size() const override { return images_.shape[0]; }

  Example get(int64_t index) const override {
    data::check_index(index, size());
    auto pixels = at::empty({1, images_.shape[1], images_.shape[2]}, at::kFloat);
    convert(index, pixels.data_ptr<float>());
    return {{"pixel_values", std::move(pixels)}, {"labels", label(index)}};
  }

  std::optional<Batch> get_batch(std::span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    auto pixels = at::empty({rows, 1, images_.shape[1], images_.shape[2]}, at::kFloat);
    auto labels = at::empty({rows}, at::kLong);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = indices[static_cast<size_t>(row)];
      data::check_index(index, size());
      convert(index, pixels.data_ptr<float>() + row * pixels_);
      labels.data_ptr<int64_t>()[row] = label(index);
    }
    return Batch{{"pixel_values", std::move(pixels)}, {"labels", std::move(labels)}};
  }

  std::vector<std::string> column_names() const override { return {"pixel_values", "labels"}; }

 private:
  int64_t label(int64_t index) const {
    return static_cast<unsigned char>(labels_[static_cast<size_t>(index)]);
  }

  void convert(int64_t index, float* to) const {
    const auto* from =
        reinterpret_cast<const unsigned char*>(images_.values.data()) + index * pixels_;
    for (int64_t i = 0; i < pixels_; ++i) to[i] = table_[from[i]];
  }

  data::IdxFile images_;
  std::string labels_;
  std::array<float, 256> table_{};
  int64_t pixels_ = 0;
};

}  // namespace

std::shared_ptr<Dataset> idx_images(IdxImagesOptions options) {
  const auto image_file = options.images.string();
  const auto label_file = options.labels.string();
  auto images = data::read_idx(options.images, 3);
  auto labels = data::read_idx(options.labels, 1);
  if (images.shape[0] != labels.shape[0]) {
    throw Error("G-DATA-23", ErrorKind::data,
                fmt::format("{} has {} images, {} has {} labels", image_file, images.shape[0],
                            label_file, labels.shape[0]),
                "The two files must belong together.");
  }
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const auto label = static_cast<int64_t>(static_cast<unsigned char>(labels.values[i]));
    if (label < options.num_labels) continue;
    throw Error("G-DATA-24", ErrorKind::data,
                fmt::format("{}: label {} of image {} is out of range, expected 0 to {}",
                            label_file, label, i, options.num_labels - 1),
                "Set num_labels to the number of classes, or check the file.");
  }
  return std::make_shared<ImageDataset>(std::move(images), std::move(labels.values), options.mean,
                                        options.std);
}

ImageSplits fashion_mnist(const std::filesystem::path& folder) {
  const std::filesystem::path where = folder.empty() ? "/usr/share/datasets/fashion-mnist" : folder;
  const auto file = [&](const std::string& name) {
    for (const auto* ending : {".gz", ""}) {
      auto path = where / (name + ending);
      if (std::filesystem::exists(path)) return path;
    }
    throw Error(
        "G-DATA-20", ErrorKind::data,
        fmt::format("Fashion-MNIST is not installed: {} has no {}.gz", where.string(), name),
        "Install it with: sudo apt-get install dataset-fashion-mnist\nor give the folder "
        "with the four idx files.");
  };
  const auto part = [&](const std::string& name) {
    return idx_images({.images = file(name + "-images-idx3-ubyte"),
                       .labels = file(name + "-labels-idx1-ubyte"),
                       .num_labels = 10,
                       .mean = 0.2860,
                       .std = 0.3530});
  };
  return {part("train"), part("t10k")};
}

}  // namespace gradus
