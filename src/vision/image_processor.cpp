#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/vision/image_processor.h>

#include <algorithm>
#include <array>

namespace gradus {
namespace fs = std::filesystem;
namespace {

constexpr const char* kProcessorFile = "preprocessor_config.json";
constexpr int64_t kLargestSide = 16384;

/// Typed values of a preprocessor_config.json.
class ProcessorReader {
 public:
  ProcessorReader(const nlohmann::json& values, const std::string& where)
      : values_(values), where_(where) {}

  [[noreturn]] void fail(const std::string& key, const std::string& expected) const {
    const auto* value = find(key);
    throw Error("G-IMG-6", ErrorKind::model,
                fmt::format("{}: {} must be {}, received {}", where_, key, expected,
                            value == nullptr ? "nothing" : dump_json(*value).substr(0, 60)),
                "Correct the file, or name another processor with --image_processor_name.");
  }

  const nlohmann::json* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }

  bool flag(const std::string& key, bool fallback) const {
    const auto* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) fail(key, "true or false");
    return value->get<bool>();
  }

  double positive(const std::string& key, double fallback) const {
    const auto* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number() || !(value->get<double>() > 0.0) || value->get<double>() > 1e6)
      fail(key, "a positive number");
    return value->get<double>();
  }

  /// `resample`, by Pillow's numbers.
  ResizeFilter filter(ResizeFilter fallback) const {
    const auto* value = find("resample");
    if (value == nullptr) return fallback;
    if (!value->is_number_integer() || value->get<int64_t>() < 0 || value->get<int64_t>() > 5)
      fail("resample", "0 to 5: nearest, Lanczos, bilinear, bicubic, box or Hamming");
    return ResizeFilter(value->get<int>());
  }

  /// Three numbers; one counts for all channels.
  std::array<double, 3> channels(const std::string& key, double fallback) const {
    const auto* value = find(key);
    std::array<double, 3> numbers;
    numbers.fill(fallback);
    if (value == nullptr) return numbers;
    const auto list = value->is_number() ? nlohmann::json::array({*value, *value, *value}) : *value;
    if (!list.is_array() || list.size() != 3) fail(key, "a list of three numbers");
    for (size_t i = 0; i < 3; ++i) {
      if (!list[i].is_number()) fail(key, "a list of three numbers");
      numbers[i] = list[i].get<double>();
    }
    return numbers;
  }

  /// A side in `size` or `crop_size`; unset when it has no such entry.
  std::optional<int64_t> side(const std::string& key, const char* name) const {
    const auto* value = find(key);
    if (value == nullptr || !value->is_object() || !value->contains(name) ||
        value->at(name).is_null())
      return std::nullopt;
    return checked_side(key, value->at(name));
  }

  /// Height and width of a size without names, as older files have it: a number or a pair.
  std::optional<std::array<int64_t, 2>> plain_sides(const std::string& key) const {
    const auto* value = find(key);
    if (value == nullptr || value->is_object()) return std::nullopt;
    if (value->is_array() && value->size() == 2)
      return std::array{checked_side(key, value->at(0)), checked_side(key, value->at(1))};
    return std::array{checked_side(key, *value), checked_side(key, *value)};
  }

  /// Fails when an object has neither `shortest_edge`, where that counts, nor height and width.
  void need_sides(const std::string& key, bool takes_shortest_edge) const {
    const auto* value = find(key);
    if (value == nullptr || !value->is_object() || value->empty()) return;
    const auto has = [&](const char* name) {
      return value->contains(name) && !value->at(name).is_null();
    };
    if (has("longest_edge") ||
        !((has("height") && has("width")) || (takes_shortest_edge && has("shortest_edge"))))
      fail(key, takes_shortest_edge ? "given by shortest_edge, or by height and width"
                                    : "given by height and width");
  }

 private:
  int64_t checked_side(const std::string& key, const nlohmann::json& value) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 1 ||
        value.get<int64_t>() > kLargestSide)
      fail(key, fmt::format("of sides from 1 to {} pixels", kLargestSide));
    return value.get<int64_t>();
  }

  const nlohmann::json& values_;
  const std::string& where_;
};

/// The class that wrote the file: "ViTImageProcessor", of older files "ViTFeatureExtractor".
std::string processor_class(const nlohmann::json& config) {
  for (const auto* key : {"image_processor_type", "feature_extractor_type"})
    if (const auto found = config.find(key); found != config.end() && found->is_string())
      return found->get<std::string>();
  return "";
}

}  // namespace

ImageProcessor::ImageProcessor(nlohmann::json config, std::string where)
    : config_(std::move(config)) {
  if (!config_.is_object())
    throw Error("G-IMG-6", ErrorKind::model, where + " is not a JSON object", "Correct the file.");
  const ProcessorReader read(config_, where);
  is_convnext_ = processor_class(config_).starts_with("ConvNext");
  do_resize_ = read.flag("do_resize", true);
  do_center_crop_ = read.flag("do_center_crop", false);
  crop_pct_ = read.positive("crop_pct", crop_pct_);
  read.need_sides("size", /*takes_shortest_edge=*/true);
  if (do_center_crop_) read.need_sides("crop_size", /*takes_shortest_edge=*/false);
  const auto plain = read.plain_sides("size");
  shortest_edge_ = read.side("size", "shortest_edge");
  if (is_convnext_ && !shortest_edge_ && read.side("size", "height"))
    read.fail("size", "given by shortest_edge");
  if (is_convnext_ && !shortest_edge_) shortest_edge_ = plain ? (*plain)[0] : 384;
  const auto edge = shortest_edge_.value_or(224);
  const auto sides = plain.value_or(std::array{edge, edge});
  height_ = read.side("size", "height").value_or(sides[0]);
  width_ = read.side("size", "width").value_or(sides[1]);
  const auto crop = read.plain_sides("crop_size").value_or(std::array{height_, width_});
  crop_height_ = read.side("crop_size", "height").value_or(crop[0]);
  crop_width_ = read.side("crop_size", "width").value_or(crop[1]);
  filter_ = read.filter(is_convnext_ ? ResizeFilter::bicubic : ResizeFilter::bilinear);
  const auto mean = read.channels("image_mean", 0.5), std = read.channels("image_std", 0.5);
  for (const auto value : std)
    if (!(value > 0.0)) read.fail("image_std", "a list of three positive numbers");
  const std::array<double, 3> zeros = {0, 0, 0}, ones = {1, 1, 1};
  const bool normalizes = read.flag("do_normalize", true);
  const auto factor =
      read.flag("do_rescale", true) ? read.positive("rescale_factor", 1.0 / 255.0) : 1.0;
  scale_ = PixelScale(factor, normalizes ? mean : zeros, normalizes ? std : ones);
  training_scale_ = PixelScale(mean, std);
}

std::shared_ptr<ImageProcessor> ImageProcessor::from_pretrained(const fs::path& path) {
  const auto given = expand_user(path);
  const auto file = fs::is_directory(given) ? given / kProcessorFile : given;
  if (!fs::exists(file))
    throw Error("G-IMG-6", ErrorKind::model,
                fmt::format("there is no image processor in {}: expected {}", given.string(),
                            kProcessorFile),
                "Name a folder with one (--image_processor_name), or fetch the file of the model.");
  return std::make_shared<ImageProcessor>(read_json(file), file.string());
}

std::shared_ptr<ImageProcessor> ImageProcessor::for_model(const nlohmann::json& model_config) {
  const auto type = model_config.value("model_type", "");
  nlohmann::json size = 224;
  if (const auto found = model_config.find("image_size"); found != model_config.end())
    size = *found;
  const bool is_pair = size.is_array() && size.size() == 2;
  const auto height = is_pair ? size[0] : size, width = is_pair ? size[1] : size;
  const bool is_vit = type == "vit";
  return std::make_shared<ImageProcessor>(
      nlohmann::json{
          {"do_normalize", true},
          {"do_rescale", true},
          {"do_resize", true},
          {"image_mean", {0.5, 0.5, 0.5}},
          {"image_std", {0.5, 0.5, 0.5}},
          {"image_processor_type", is_vit ? "ViTImageProcessor" : "ConvNextImageProcessor"},
          {"resample", is_vit ? 2 : 3},
          {"rescale_factor", 1.0 / 255.0},
          {"size", is_vit ? nlohmann::json{{"height", height}, {"width", width}}
                          : nlohmann::json{{"shortest_edge", height}}}},
      "the default image processor");
}

namespace {

/// transformers' crop of the middle: an odd remainder leaves the larger part below and right, where
/// torchvision's rounds to even.
torch::Tensor processor_crop(const torch::Tensor& image, int64_t height, int64_t width) {
  const auto rows = image.size(0), columns = image.size(1);
  if (height > rows || width > columns)
    return processor_crop(center_crop(image, std::max(height, rows), std::max(width, columns)),
                          height, width);
  return crop_image(image, (rows - height) / 2, (columns - width) / 2, height, width);
}

}  // namespace

torch::Tensor ImageProcessor::resized(const torch::Tensor& image) const {
  if (!shortest_edge_) return resize_image(image, height_, width_, filter_);
  if (is_convnext_ && *shortest_edge_ >= 384)
    return resize_image(image, *shortest_edge_, *shortest_edge_, filter_);
  const auto edge = is_convnext_ ? int64_t(double(*shortest_edge_) / crop_pct_) : *shortest_edge_;
  const auto [height, width] = size_by_shortest_edge(image.size(0), image.size(1), edge);
  const auto whole = resize_image(image, height, width, filter_);
  return is_convnext_ ? processor_crop(whole, *shortest_edge_, *shortest_edge_) : whole;
}

torch::Tensor ImageProcessor::operator()(const torch::Tensor& image) const {
  auto changed = do_resize_ ? resized(image) : image;
  if (do_center_crop_) changed = processor_crop(changed, crop_height_, crop_width_);
  return scale_(changed);
}

void ImageProcessor::save_pretrained(const fs::path& directory) const {
  write_file_atomically(directory / kProcessorFile, dump_json(config_, 2) + "\n");
}

}  // namespace gradus
