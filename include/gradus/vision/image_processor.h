#pragma once

#include <gradus/data/tokenizer_like.h>
#include <gradus/vision/transforms.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace gradus {

/// The image processor of a model, as preprocessor_config.json describes it.
///
/// It turns a decoded image into `pixel_values` as the processors of ViT, ConvNeXt and ResNet in
/// transformers do, with Pillow's filter. Where transformers resizes with torchvision instead,
/// pixels differ by at most one grey level. A `Trainer` takes it as `processing_class` and saves
/// its file with every checkpoint. It has no tokens.
/// Thread-safety: all members are const and may be called from several threads.
class ImageProcessor : public TokenizerLike {
 public:
  /// From the content of a preprocessor_config.json. Throws `Error` G-IMG-6 for a value that cannot
  /// be used, with its key. `where` names the file.
  explicit ImageProcessor(nlohmann::json config, std::string where = "preprocessor_config.json");
  /// Reads preprocessor_config.json of a folder, or the file itself. Throws G-IMG-6 when there is
  /// none.
  static std::shared_ptr<ImageProcessor> from_pretrained(const std::filesystem::path& path);
  /// The settings that transformers has for a model type ("vit", "convnext", "resnet") without a
  /// file, with the model's own `image_size`.
  static std::shared_ptr<ImageProcessor> for_model(const nlohmann::json& model_config);

  /// The pixel values of an image, float32 (3, height, width).
  torch::Tensor operator()(const torch::Tensor& image) const;

  /// `size.shortest_edge`, when the file has it; else `height` and `width` are set.
  std::optional<int64_t> shortest_edge() const { return shortest_edge_; }
  int64_t height() const { return height_; }  ///< Of the images a model sees.
  int64_t width() const { return width_; }    ///< Of the images a model sees.
  /// byte / 255, normalised by `image_mean` and `image_std`: what the training script uses,
  /// whatever `do_normalize` says.
  const PixelScale& training_scale() const { return training_scale_; }
  /// The content of the file.
  const nlohmann::json& config() const { return config_; }

  // What a tokenizer would have.

  std::optional<int64_t> pad_token_id() const override { return std::nullopt; }   ///< None.
  std::optional<int64_t> mask_token_id() const override { return std::nullopt; }  ///< None.
  int64_t full_vocab_size() const override { return 0; }                          ///< None.
  std::vector<int64_t> all_special_ids() const override { return {}; }            ///< None.
  /// `pixel_values`.
  std::vector<std::string> model_input_names() const override { return {"pixel_values"}; }
  /// Writes preprocessor_config.json into a folder that exists.
  void save_pretrained(const std::filesystem::path& directory) const override;

 private:
  torch::Tensor resized(const torch::Tensor& image) const;

  nlohmann::json config_;
  bool is_convnext_ = false;
  std::optional<int64_t> shortest_edge_;
  int64_t height_ = 224, width_ = 224;
  bool do_resize_ = true, do_center_crop_ = false;
  int64_t crop_height_ = 0, crop_width_ = 0;
  double crop_pct_ = 224.0 / 256.0;
  ResizeFilter filter_ = ResizeFilter::bilinear;
  PixelScale scale_, training_scale_;
};

}  // namespace gradus
