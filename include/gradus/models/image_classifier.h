#pragma once

#include <gradus/models/model.h>

#include <cstdint>
#include <filesystem>
#include <memory>

namespace gradus {

/// The sizes of an image classifier.
struct ImageClassifierOptions {
  int64_t num_labels = 10;   ///< Number of classes.
  int64_t num_channels = 1;  ///< Channels of an image: 1 for grey, 3 for colour.
  int64_t image_size = 28;   ///< Height and width in pixels; at least 8.
  int64_t channels = 32;     ///< Of the first convolution; the second has twice as many.
  double dropout = 0.25;     ///< Between the two linear layers.
};

/// Builds `small-cnn`: two blocks of convolution, batch norm, ReLU and pooling, then two linear
/// layers. It takes `pixel_values` (batch, channels, height, width) and `labels`, and returns
/// `loss` and `logits`. Throws `Error` G-MODEL-20 for sizes that are not possible.
std::shared_ptr<Model> make_image_classifier(ImageClassifierOptions options = {});

/// Loads a network from a folder that a trainer's `save_model` wrote (config.json and
/// model.safetensors). Throws `Error` G-MODEL-21 when the folder holds another kind of model.
std::shared_ptr<Model> load_image_classifier(const std::filesystem::path& directory);

}  // namespace gradus
