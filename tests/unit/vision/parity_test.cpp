// Compares decoders, transforms and image processors with Pillow, torchvision and transformers; the
// numbers are those of tests/parity/vision/make_fixtures.py.
#include <ATen/CPUGeneratorImpl.h>
#include <gradus/core/error.h>
#include <gradus/formats/safetensors.h>
#include <gradus/vision/decode.h>
#include <gradus/vision/image_dataset.h>
#include <gtest/gtest.h>

#include <map>

namespace gradus {
namespace {

struct VisionFixture {
  explicit VisionFixture(const std::string& name) {
    auto file = read_safetensors(std::filesystem::path(GRADUS_SOURCE_DIR) /
                                 "tests/parity/vision/fixtures" / (name + ".safetensors"));
    tensors = {file.tensors.begin(), file.tensors.end()};
    metadata = {file.metadata.begin(), file.metadata.end()};
  }
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

std::string_view bytes_in(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), size_t(tensor.numel())};
}

int64_t difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kInt) - b.to(torch::kInt)).abs().max().item<int64_t>();
}

TEST(DecodeImage, GivesThePixelsOfPillow) {
  const VisionFixture fixture("decode");
  int images = 0;
  for (const auto& [name, tensor] : fixture.tensors) {
    if (!name.starts_with("bytes/")) continue;
    ++images;
    const auto& expected = fixture.tensors.at("rgb/" + name.substr(6));
    const auto info = image_info(bytes_in(tensor));
    EXPECT_EQ(info.height, expected.size(0)) << name;
    EXPECT_EQ(info.width, expected.size(1)) << name;
    const auto image = decode_image(bytes_in(tensor));
    ASSERT_EQ(image.sizes(), expected.sizes()) << name;
    EXPECT_EQ(difference(image, expected), 0) << name;
  }
  EXPECT_GT(images, 30);
}

TEST(DecodeImage, NamesWhatIsWrongWithADamagedFile) {
  const VisionFixture fixture("decode");
  int files = 0;
  for (const auto& [name, tensor] : fixture.tensors) {
    if (!name.starts_with("damaged/")) continue;
    ++files;
    const auto id = name.substr(name.rfind('/') + 1);
    try {
      decode_image(bytes_in(tensor), {.name = "folder/a.png"});
      ADD_FAILURE() << name << " was decoded";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), id) << name << ": " << error.what();
      EXPECT_TRUE(error.message().starts_with("folder/a.png ")) << error.what();
    }
  }
  EXPECT_GT(files, 10);
}

TEST(DecodeImage, ShrinksAJpegWhileItDecodes) {
  const VisionFixture fixture("decode");
  const auto whole = decode_image(bytes_in(fixture.tensors.at("bytes/jpeg_0")));
  const auto half = decode_image(bytes_in(fixture.tensors.at("bytes/jpeg_0")), {.shrink = 2});
  ASSERT_EQ(half.sizes(), torch::IntArrayRef({15, 19, 3}));
  // The mean of four pixels, but for rounding and the last row and column.
  const auto mean =
      torch::avg_pool2d(whole.permute({2, 0, 1}).to(torch::kFloat).unsqueeze(0), 2)[0].permute(
          {1, 2, 0});
  const auto inner = half.narrow(0, 0, 14).narrow(1, 0, 18).to(torch::kFloat);
  EXPECT_LT((inner - mean).abs().mean().item<double>(), 4.0);
}

TEST(DecodeImagePart, GivesThePixelsOfTheWholeImage) {
  const VisionFixture fixture("decode");
  torch::manual_seed(0);
  const auto draw = [](int64_t from, int64_t to) {
    return torch::randint(from, to + 1, {1}, torch::kLong).item<int64_t>();
  };
  int64_t cut = 0;
  for (const auto& [name, tensor] : fixture.tensors) {
    if (!name.starts_with("bytes/")) continue;
    const auto info = image_info(bytes_in(tensor));
    for (int i = 0; i < 40; ++i) {
      const ImageDecodeOptions options{.shrink = i % 2 == 0 ? 1 : 2};
      const auto whole = decode_image(bytes_in(tensor), options);
      const auto top = draw(0, info.height - 1), left = draw(0, info.width - 1);
      const auto height = draw(1, info.height - top), width = draw(1, info.width - left);
      const CropBox box{double(top), double(left), double(height), double(width)};
      const auto part = decode_image_part(bytes_in(tensor), box, options);
      ASSERT_EQ(part.height, whole.size(0)) << name;
      ASSERT_EQ(part.width, whole.size(1)) << name;
      const double down = double(part.height) / double(info.height),
                   across = double(part.width) / double(info.width);
      // The part itself, and two pixels around it.
      const auto first_row = std::max<int64_t>(0, int64_t(box.top * down) - 2),
                 first_column = std::max<int64_t>(0, int64_t(box.left * across) - 2);
      const auto rows = std::min(part.height, int64_t((box.top + box.height) * down) + 2),
                 columns = std::min(part.width, int64_t((box.left + box.width) * across) + 2);
      const auto expected =
          crop_image(whole, first_row, first_column, rows - first_row, columns - first_column);
      const auto got = crop_image(part.pixels, first_row - part.top, first_column - part.left,
                                  rows - first_row, columns - first_column);
      ASSERT_EQ(difference(got, expected), 0) << name << ", part " << i;
      cut += part.pixels.numel() < whole.numel();
    }
  }
  EXPECT_GT(cut, 50);
}

TEST(DecodeImagePart, RefusesAPartOutsideTheImage) {
  const VisionFixture fixture("decode");
  const auto bytes = bytes_in(fixture.tensors.at("bytes/jpeg_0"));
  const auto info = image_info(bytes);
  const auto height = double(info.height), width = double(info.width);
  for (const auto& box : {CropBox{0, 0, height + 1, width}, CropBox{0, 1, height, width},
                          CropBox{-1, 0, height, width}, CropBox{0, 0, 0, width}}) {
    try {
      decode_image_part(bytes, box, {.name = "folder/a.jpg"});
      ADD_FAILURE() << "it was decoded";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-IMG-8");
      EXPECT_TRUE(error.message().starts_with("folder/a.jpg has ")) << error.what();
    }
  }
}

TEST(ResizeImage, EqualsPillow) {
  const VisionFixture fixture("transforms");
  const std::map<std::string, ResizeFilter> filters = {{"lanczos", ResizeFilter::lanczos},
                                                       {"bilinear", ResizeFilter::bilinear},
                                                       {"bicubic", ResizeFilter::bicubic},
                                                       {"box", ResizeFilter::box},
                                                       {"hamming", ResizeFilter::hamming}};
  for (const auto& [name, expected] : fixture.tensors) {
    if (!name.starts_with("resized/")) continue;
    const auto word = name.substr(8, name.find('_') - 8);
    const auto got = resize_image(fixture.tensors.at("image"), expected.size(0), expected.size(1),
                                  filters.at(word));
    EXPECT_EQ(difference(got, expected), 0) << name;
  }
}

// The last row is summed in another way than those before, which read a little beyond their end.
TEST(ResizeImage, MakesEqualRowsOfEqualRows) {
  torch::manual_seed(0);
  for (const auto filter : {ResizeFilter::lanczos, ResizeFilter::bilinear, ResizeFilter::bicubic,
                            ResizeFilter::box, ResizeFilter::hamming}) {
    for (const int64_t width : {1, 2, 3, 4, 5, 7, 13, 64, 201}) {
      const auto row = torch::randint(0, 2, {1, width, 3}, torch::kByte) * 255;
      const auto image = row.repeat({5, 1, 1});
      for (const int64_t wanted : {1, 2, 5, 30, 150}) {
        if (wanted == width) continue;
        const auto got = resize_image(image, 5, wanted, filter);
        EXPECT_TRUE(torch::equal(got, got.slice(0, 4).expand_as(got))) << width << " " << wanted;
        EXPECT_TRUE(torch::equal(got.slice(0, 4), resize_image(row, 1, wanted, filter)));
      }
    }
  }
}

TEST(ResizeImage, RefusesWhatIsNoImage) {
  EXPECT_THROW(resize_image(torch::zeros({4, 4, 3}), 2, 2), Error);
  EXPECT_THROW(resize_image(torch::zeros({4, 4, 3}, torch::kByte), 0, 2), Error);
}

TEST(CenterCrop, EqualsTorchvisionWithBordersWhereTheImageIsSmaller) {
  const VisionFixture fixture("transforms");
  for (const auto& [name, expected] : fixture.tensors) {
    if (!name.starts_with("center/")) continue;
    EXPECT_EQ(
        difference(center_crop(fixture.tensors.at("image"), expected.size(0), expected.size(1)),
                   expected),
        0)
        << name;
  }
}

TEST(RandomResizedCrop, DrawsAsTorchvision) {
  const VisionFixture fixture("transforms");
  auto generator = at::detail::createCPUGenerator(7);
  const auto crops = fixture.tensors.at("crops");
  for (int64_t i = 0; i < crops.size(0); ++i) {
    const auto at = [&](int64_t column) { return crops[i][column].item<int64_t>(); };
    const auto box = random_resized_crop(at(0), at(1), generator);
    EXPECT_EQ(box.top, at(2)) << i;
    EXPECT_EQ(box.left, at(3)) << i;
    EXPECT_EQ(box.height, at(4)) << i;
    EXPECT_EQ(box.width, at(5)) << i;
    EXPECT_EQ(random_flip(generator), at(6) != 0) << i;
  }
}

TEST(PixelScale, MakesThePipelinesOfTorchvision) {
  const VisionFixture fixture("transforms");
  const auto& image = fixture.tensors.at("image");
  const PixelScale scale({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  for (int number = 0; number < 3; ++number) {
    const auto& expected = fixture.tensors.at("train/" + std::to_string(number));
    auto generator = at::detail::createCPUGenerator(11);
    for (int64_t i = 0; i < expected.size(0); ++i) {
      const auto box = random_resized_crop(image.size(0), image.size(1), generator);
      const auto part = crop_image(image, int64_t(box.top), int64_t(box.left), int64_t(box.height),
                                   int64_t(box.width));
      const bool flip = random_flip(generator);
      const auto got = scale(resize_image(part, expected.size(2), expected.size(3)), flip);
      EXPECT_LT((got - expected[i]).abs().max().item<double>(), 1e-6) << number << " " << i;
    }
    const auto& middle = fixture.tensors.at("eval/" + std::to_string(number));
    auto size = std::pair(middle.size(1), middle.size(2));
    if (number == 2) size = size_by_shortest_edge(image.size(0), image.size(1), 24);
    const auto resized = resize_image(image, size.first, size.second);
    const auto got = scale(center_crop(resized, middle.size(1), middle.size(2)));
    EXPECT_LT((got - middle).abs().max().item<double>(), 1e-6) << number;
  }
}

TEST(ImageProcessor, EqualsTransformers) {
  const VisionFixture fixture("processors");
  int processors = 0;
  for (const auto& [key, text] : fixture.metadata) {
    if (!key.starts_with("config/")) continue;
    ++processors;
    const auto name = key.substr(7);
    const ImageProcessor processor(nlohmann::json::parse(text));
    auto got = processor(fixture.tensors.at("image"));
    if (name == "convnext_large") {
      EXPECT_EQ(got.sizes(), torch::IntArrayRef({3, 384, 384}));
      got = got.slice(1, 0, std::nullopt, 16).slice(2, 0, std::nullopt, 16);
    }
    const auto& expected = fixture.tensors.at(name);
    ASSERT_EQ(got.sizes(), expected.sizes()) << name;
    EXPECT_LT((got - expected).abs().max().item<double>(), 1e-5) << name;
  }
  EXPECT_EQ(processors, 10);
}

}  // namespace
}  // namespace gradus
