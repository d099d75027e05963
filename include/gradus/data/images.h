#pragma once

#include <gradus/data/dataset.h>

#include <filesystem>

namespace gradus {

/// Options of `idx_images`.
struct IdxImagesOptions {
  std::filesystem::path images = {};  ///< idx file of bytes [count, height, width], plain or .gz
  std::filesystem::path labels = {};  ///< idx file of bytes [count], plain or .gz
  int64_t num_labels = 256;           ///< labels must be below it
  double mean = 0.5;                  ///< pixel values are (byte / 255 - mean) / std
  double std = 0.5;
};

/// Images and labels as MNIST's files hold them: rows {"pixel_values": float32 [1, height, width],
/// "labels": int64}. Kept in memory as bytes and turned into floats batch by batch. Throws G-IO-1
/// when a file cannot be read, G-DATA-21 when it is cut short or damaged, G-DATA-22 when it is no
/// idx file of that kind, G-DATA-23 when there are not as many labels as images, G-DATA-24 for a
/// label out of range.
std::shared_ptr<Dataset> idx_images(IdxImagesOptions options);

/// The two parts of an image data set.
struct ImageSplits {
  /// The images to train on.
  std::shared_ptr<Dataset> train;
  /// The images to evaluate on.
  std::shared_ptr<Dataset> test;
};

/// Fashion-MNIST from Debian's package dataset-fashion-mnist, or from `folder` with files of the
/// same names: 60,000 and 10,000 images of 28 x 28 in 10 classes, normalised with the mean 0.2860
/// and deviation 0.3530 of the training images. Throws G-DATA-20 when the package is not there.
ImageSplits fashion_mnist(const std::filesystem::path& folder = {});

}  // namespace gradus
