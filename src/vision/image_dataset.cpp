#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/vision/decode.h>
#include <gradus/vision/image_dataset.h>

#include <ATen/ops/empty.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "data/collate_random.h"
#include "data/index_check.h"

namespace gradus {
namespace {

/// The largest of 1, 2, 4 and 8 by which a part of an image can be shrunk and still be no smaller
/// than the result.
int64_t shrink_for(const CropBox& part, int64_t height, int64_t width) {
  for (const int64_t shrink : {8, 4, 2})
    if (part.height / double(shrink) >= double(height) &&
        part.width / double(shrink) >= double(width))
      return shrink;
  return 1;
}

class ImageRows final : public Dataset {
 public:
  ImageRows(std::shared_ptr<const ImageSource> source, std::vector<int64_t> rows,
            ImageTransform transform)
      : source_(std::move(source)), rows_(std::move(rows)), transform_(std::move(transform)) {}

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::vector<std::string> column_names() const override { return {"pixel_values", "labels"}; }

  Example get(int64_t index) const override {
    const int64_t one[] = {index};
    return std::move(get_many(one).front());
  }

  std::vector<Example> get_many(std::span<const int64_t> indices) const override {
    auto generator = data::batch_generator(std::nullopt);
    std::vector<Example> rows;
    for (const auto index : indices) {
      auto pixels = at::empty({3, transform_.height, transform_.width}, at::kFloat);
      const auto label = make(index, generator, pixels.data_ptr<float>());
      rows.push_back({{"pixel_values", std::move(pixels)}, {"labels", label}});
    }
    return rows;
  }

  std::optional<Batch> get_batch(std::span<const int64_t> indices) const override {
    auto generator = data::batch_generator(std::nullopt);
    const auto count = static_cast<int64_t>(indices.size());
    auto pixels = at::empty({count, 3, transform_.height, transform_.width}, at::kFloat);
    auto labels = at::empty({count}, at::kLong);
    const auto stride = 3 * transform_.height * transform_.width;
    for (int64_t i = 0; i < count; ++i)
      labels.data_ptr<int64_t>()[i] =
          make(indices[size_t(i)], generator, pixels.data_ptr<float>() + i * stride);
    return Batch{{"pixel_values", std::move(pixels)}, {"labels", std::move(labels)}};
  }

 private:
  /// Writes the pixels of a row and gives its label.
  int64_t make(int64_t index, at::Generator& generator, float* to) const {
    data::check_index(index, size());
    const auto row = rows_[static_cast<size_t>(index)];
    const auto encoded = source_->image(row);
    const ImageDecodeOptions options{.name = encoded.name};
    if (transform_.augment)
      write_random_part(encoded, options, generator, to);
    else
      write_middle(encoded, options, to);
    return source_->label(row);
  }

  void write_random_part(const EncodedImage& encoded, ImageDecodeOptions options,
                         at::Generator& generator, float* to) const {
    const auto info = image_info(encoded.bytes, options);
    auto part = random_resized_crop(info.height, info.width, generator);
    const bool flip = random_flip(generator);
    if (!transform_.scaled_decoding) {
      const auto around = decode_image_part(encoded.bytes, part, options);
      const auto cut =
          crop_image(around.pixels, int64_t(part.top) - around.top,
                     int64_t(part.left) - around.left, int64_t(part.height), int64_t(part.width));
      transform_.scale.write(resize_image(cut, transform_.height, transform_.width), flip, to);
      return;
    }
    const auto image = decode_shrunk(encoded, info, part, transform_.height, transform_.width);
    transform_.scale.write(
        resize_image(image, transform_.height, transform_.width, ResizeFilter::bilinear, part),
        flip, to);
  }

  void write_middle(const EncodedImage& encoded, const ImageDecodeOptions& options,
                    float* to) const {
    torch::Tensor image;
    CropBox part;
    ImageInfo info;
    if (transform_.scaled_decoding) {
      info = image_info(encoded.bytes, options);
    } else {
      image = decode_image(encoded.bytes, options);
      info.height = image.size(0);
      info.width = image.size(1);
    }
    auto [height, width] =
        transform_.shortest_edge
            ? size_by_shortest_edge(info.height, info.width, *transform_.shortest_edge)
            : std::pair(transform_.height, transform_.width);
    part = {0, 0, double(info.height), double(info.width)};
    if (!image.defined()) image = decode_shrunk(encoded, info, part, height, width);
    const auto resized = resize_image(image, height, width, ResizeFilter::bilinear, part);
    transform_.scale.write(center_crop(resized, transform_.height, transform_.width), false, to);
  }

  /// Decodes as small as `part` allows, and turns `part` into coordinates of the result.
  static torch::Tensor decode_shrunk(const EncodedImage& encoded, const ImageInfo& info,
                                     CropBox& part, int64_t height, int64_t width) {
    const auto around = decode_image_part(
        encoded.bytes, part, {.name = encoded.name, .shrink = shrink_for(part, height, width)});
    const double down = double(around.height) / double(info.height),
                 across = double(around.width) / double(info.width);
    part = {part.top * down - double(around.top), part.left * across - double(around.left),
            part.height * down, part.width * across};
    return around.pixels;
  }

  std::shared_ptr<const ImageSource> source_;
  std::vector<int64_t> rows_;
  ImageTransform transform_;
};

}  // namespace

ImageTransform image_transform(const ImageProcessor& processor, bool augment) {
  const auto edge = processor.shortest_edge();
  return {.height = edge.value_or(processor.height()),
          .width = edge.value_or(processor.width()),
          .shortest_edge = edge,
          .scale = processor.training_scale(),
          .augment = augment};
}

std::shared_ptr<Dataset> image_dataset(std::shared_ptr<const ImageSource> source,
                                       std::vector<int64_t> rows, ImageTransform transform) {
  for (const auto row : rows) data::check_index(row, source->size());
  return std::make_shared<ImageRows>(std::move(source), std::move(rows), std::move(transform));
}

std::vector<int64_t> readable_images(const ImageSource& source, std::vector<int64_t> rows,
                                     int64_t most_bad, int64_t threads) {
  std::vector<std::string> problems(rows.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < rows.size(); i = next++) {
      try {
        const auto encoded = source.image(rows[i]);
        decode_image(encoded.bytes, {.name = encoded.name});
      } catch (const Error& error) {
        problems[i] = error.message();
      } catch (const std::exception& error) {
        problems[i] = fmt::format("{}: {}", source.name(rows[i]), error.what());
      }
    }
  };
  const auto wanted = threads > 0 ? threads : int64_t(std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> workers;
    for (int64_t i = 1; i < wanted; ++i) workers.emplace_back(work);
    work();
  }
  int64_t bad = 0;
  std::vector<int64_t> good;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (problems[i].empty()) {
      good.push_back(rows[i]);
      continue;
    }
    if (++bad > most_bad)
      throw Error("G-IMG-7", ErrorKind::data,
                  fmt::format("more than {} images cannot be read; the last one: {}", most_bad,
                              problems[i]),
                  "Mend the files, or allow more of them with --skip_bad_rows.");
    log_warning(fmt::format("Left out: {}", problems[i]));
  }
  return good;
}

}  // namespace gradus
