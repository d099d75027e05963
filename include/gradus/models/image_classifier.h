#pragma once

#include <gradus/models/model.h>

#include <cstdint>
#include <filesystem>
#include <memory>

namespace gradus {

struct ImageClassifierOptions {
  int64_t num_labels = 10;
  int64_t num_channels = 1;
  int64_t image_size = 28;  ///< height and width in pixels; at least 8
  int64_t channels = 32;    ///< of the first convolution; the second has twice as many
  double dropout = 0.25;
};

/// `small-cnn`: two blocks of convolution, batch norm, ReLU and pooling, then two linear layers.
/// Takes `pixel_values` [batch, channels, height, width] and `labels`; gives `loss` and `logits`.
/// Throws `Error` G-MODEL-20 for sizes that make no network.
std::shared_ptr<Model> make_image_classifier(ImageClassifierOptions options = {});

/// The network of a folder written by `save_model`: config.json and model.safetensors.
/// Throws G-MODEL-21 when the folder holds another kind of model.
std::shared_ptr<Model> load_image_classifier(const std::filesystem::path& directory);

}  // namespace gradus
