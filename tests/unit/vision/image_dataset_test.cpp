#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/data_loader.h>
#include <gradus/formats/safetensors.h>
#include <gradus/vision/decode.h>
#include <gradus/vision/image_dataset.h>
#include <gradus/vision/image_show.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace gradus {
namespace {

namespace fs = std::filesystem;

/// A file of tests/parity/vision/fixtures/decode.safetensors.
std::string stored_image(const std::string& name) {
  const auto file = read_safetensors(fs::path(GRADUS_SOURCE_DIR) /
                                     "tests/parity/vision/fixtures/decode.safetensors");
  for (const auto& [key, tensor] : file.tensors)
    if (key == "bytes/" + name)
      return {static_cast<const char*>(tensor.const_data_ptr()), size_t(tensor.numel())};
  throw std::runtime_error("there is no " + name);
}

/// A folder that vanishes with the object.
class ImageTree {
 public:
  ImageTree() {
    auto pattern = (fs::temp_directory_path() / "gradus-images-XXXXXX").string();
    root = mkdtemp(pattern.data());
  }
  ~ImageTree() { fs::remove_all(root); }
  ImageTree(const ImageTree&) = delete;
  ImageTree& operator=(const ImageTree&) = delete;

  void add(const fs::path& file, const std::string& content) const {
    fs::create_directories((root / file).parent_path());
    write_file_atomically(root / file, content);
  }
  fs::path root;
};

std::string id_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.id();
  }
  return "nothing was thrown";
}

TEST(ImageFolders, TakeClassesFromFoldersInTheOrderOfPaths) {
  const ImageTree tree;
  const auto png = stored_image("png_rgb");
  for (const auto* file : {"cat/b.png", "cat/a.JPG", "ant-2/z.webp", "ant/y.png", "cat/.hidden.png",
                           "cat/notes.txt", "__cache/x.png"})
    tree.add(file, png);
  const auto source = image_folders({tree.root}).front();
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"ant", "ant-2", "cat"}));
  std::vector<std::string> names;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < source->size(); ++i) {
    names.push_back(fs::relative(source->name(i), tree.root).string());
    labels.push_back(source->label(i));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"ant-2/z.webp", "ant/y.png", "cat/a.JPG", "cat/b.png"}));
  EXPECT_EQ(labels, (std::vector<int64_t>{1, 0, 2, 2}));
}

TEST(ImageFolders, ShareTheClassesOfAllFolders) {
  const ImageTree tree;
  const auto png = stored_image("png_rgb");
  for (const auto* file : {"train/cat/1.png", "train/dog/1.png", "val/bee/1.png", "val/cat/1.png"})
    tree.add(file, png);
  const auto sources = image_folders({tree.root / "train", tree.root / "val"});
  EXPECT_EQ(sources[0]->class_names(), (std::vector<std::string>{"bee", "cat", "dog"}));
  EXPECT_EQ(sources[0]->label(0), 1);
  EXPECT_EQ(sources[1]->label(0), 0);
}

TEST(ImageFolders, RefuseWhatHasNoClasses) {
  const auto png = stored_image("png_rgb");
  const ImageTree one, uneven, none, listed;
  one.add("cat/1.png", png);
  EXPECT_EQ(id_of([&] { image_folders({one.root}); }), "G-IMG-5");
  uneven.add("cat/1.png", png);
  uneven.add("dog/old/1.png", png);
  EXPECT_EQ(id_of([&] { image_folders({uneven.root}); }), "G-IMG-5");
  none.add("cat/1.txt", "text");
  EXPECT_EQ(id_of([&] { image_folders({none.root}); }), "G-IMG-5");
  listed.add("cat/1.png", png);
  listed.add("dog/1.png", png);
  listed.add("metadata.csv", "file_name,label\n");
  EXPECT_EQ(id_of([&] { image_folders({listed.root}); }), "G-IMG-5");
}

std::shared_ptr<Dataset> table_of_images() {
  const auto cell = [](const char* name) {
    return Value::nested({{"bytes", stored_image(name)}, {"path", nullptr}});
  };
  return from_examples({{{"image", cell("png_rgb")}, {"label", 1}},
                        {{"image", stored_image("jpeg_0")}, {"label", 0}},
                        {{"image", cell("webp_lossy")}, {"label", 10}}});
}

TEST(ImageTable, ReadsBytesAndLabels) {
  const auto source = image_table(table_of_images(), {});
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"0", "1", "10"}));
  EXPECT_EQ(source->label(0), 1);
  EXPECT_EQ(source->label(2), 2);
  EXPECT_EQ(source->image(1).bytes, stored_image("jpeg_0"));
  EXPECT_EQ(source->image(2).bytes, stored_image("webp_lossy"));
}

TEST(ImageTable, ReadsPathsBesideTheTable) {
  const ImageTree tree;
  tree.add("a.png", stored_image("png_rgb"));
  const auto table = from_examples({{{"image", "a.png"}, {"label", "x"}},
                                    {{"image", Value::nested({{"path", "a.png"}})}, {"label", "y"}},
                                    {{"image", 3}, {"label", "x"}}});
  const auto source = image_table(table, {}, {.folder = tree.root});
  EXPECT_EQ(source->image(0).bytes, stored_image("png_rgb"));
  EXPECT_EQ(source->image(1).bytes, stored_image("png_rgb"));
  EXPECT_EQ(id_of([&] { source->image(2); }), "G-IMG-5");
  EXPECT_EQ(id_of([&] { image_table(table, {}, {.class_names = {"x", "z"}}); }), "G-IMG-5");
  EXPECT_EQ(id_of([&] { image_table(table, {}, {.label_column = "class"}); }), "G-SRC-6");
}

TEST(ImageTable, SaysWhatALabelIs) {
  const auto table = from_examples({Example{{"image", "a.png"}, {"label", 0.5}}});
  try {
    image_table(table, {}, {.where = "t.parquet"});
    ADD_FAILURE() << "a label of 0.5 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "t.parquet, row 0: column 'label' holds float, expected a class: a text or a whole "
              "number");
  }
}

ImageTransform small(bool augment) { return {.height = 12, .width = 10, .augment = augment}; }

TEST(ImageDataset, GivesTheSameBatchForAnyNumberOfWorkers) {
  const auto source = image_table(table_of_images(), {});
  const auto dataset = image_dataset(source, {0, 1, 2, 2, 1, 0}, small(true));
  const auto batches = [&](int64_t workers) {
    const DataLoader loader(
        {.dataset = dataset, .batch_size = 4, .num_workers = workers, .seed = 5});
    std::vector<Batch> all;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      auto pass = loader.iterate(epoch);
      while (auto batch = pass.next()) all.push_back(std::move(*batch));
    }
    return all;
  };
  const auto plain = batches(0), threaded = batches(3);
  ASSERT_EQ(plain.size(), 4U);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::equal(plain[i]["pixel_values"], threaded[i]["pixel_values"])) << i;
    EXPECT_TRUE(torch::equal(plain[i]["labels"], threaded[i]["labels"])) << i;
  }
  // Other parts of the images in the second pass.
  EXPECT_FALSE(torch::equal(plain[0]["pixel_values"], plain[2]["pixel_values"]));
}

TEST(ImageDataset, ComesCloseWithScaledDecoding) {
  const auto source = image_table(table_of_images(), {});
  for (const bool augment : {false, true}) {
    auto transform = small(augment);
    const auto exact = image_dataset(source, {1}, transform)->get(0)["pixel_values"].tensor();
    transform.scaled_decoding = true;
    const auto fast = image_dataset(source, {1}, transform)->get(0)["pixel_values"].tensor();
    EXPECT_LT((exact - fast).abs().mean().item<double>(), 0.03) << augment;
  }
}

TEST(ReadableImages, LeavesOutWhatCannotBeDecodedAndNamesIt) {
  const ImageTree tree;
  tree.add("a/1.png", stored_image("png_rgb"));
  tree.add("a/2.jpg", stored_image("jpeg_0").substr(0, 300));
  tree.add("b/3.png", "not an image");
  const auto source = image_folders({tree.root}).front();
  EXPECT_EQ(readable_images(*source, {0, 1, 2}, 2, 2), (std::vector<int64_t>{0}));
  try {
    readable_images(*source, {0, 1, 2}, 1, 2);
    ADD_FAILURE() << "two bad images were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-IMG-7");
    EXPECT_NE(error.message().find("b/3.png"), std::string::npos) << error.what();
  }
}

TEST(ImageShow, DescribesImagesInTextAndAsAPage) {
  const ImageTree tree;
  tree.add("ant/1.png", stored_image("png_rgb"));
  tree.add("bee & <co>/2.jpg", stored_image("jpeg_0"));
  tree.add("bee & <co>/3.webp", "broken");
  ASSERT_TRUE(is_image_folder(tree.root));
  const auto source = image_folders({tree.root}).front();
  const auto report = image_show(*source, {.rows = 5});
  EXPECT_EQ(report["rows"], 3);
  EXPECT_EQ(report["unreadable"], 1);
  EXPECT_EQ(report["classes"]["bee & <co>"], 2);
  EXPECT_EQ(report["formats"]["JPEG"], 1);
  EXPECT_EQ(report["width"]["max"], 37);
  const auto text = format_image_show(report);
  EXPECT_NE(text.find("37 x 29 PNG"), std::string::npos) << text;
  EXPECT_NE(text.find("is not an image that can be decoded"), std::string::npos) << text;
  const auto page = image_show_html(*source, report, "a<b");
  EXPECT_NE(page.find("<h1>a&lt;b</h1>"), std::string::npos);
  EXPECT_NE(page.find("bee &amp; &lt;co&gt;"), std::string::npos);
  EXPECT_NE(page.find("data:image/png;base64,iVBORw0KGgo"), std::string::npos);
  EXPECT_EQ(page.find("<co>"), std::string::npos);
}

TEST(EncodePng, GivesBackThePixels) {
  const auto image = torch::randint(256, {5, 7, 3}, torch::kByte);
  EXPECT_TRUE(torch::equal(decode_image(encode_png(image)), image));
  EXPECT_EQ(id_of([] { encode_png(torch::zeros({5, 7, 3})); }), "G-IMG-8");
}

TEST(ImageProcessorFile, ASizeOfTwoNumbersIsHeightAndWidth) {
  const ImageProcessor processor(nlohmann::json::parse(R"({"size": [20, 33]})"));
  EXPECT_EQ(processor(torch::zeros({8, 9, 3}, torch::kByte)).sizes(),
            torch::IntArrayRef({3, 20, 33}));
}

TEST(ImageProcessorFile, SaysWhichValueIsWrong) {
  for (const auto* text :
       {R"({"size": {"height": 0, "width": 4}})", R"({"size": "large"})",
        R"({"image_std": [1, 0, 1]})", R"({"resample": 0.5})", R"({"image_mean": [1]})",
        R"({"do_resize": 1})", "[]", R"({"size": {"longest_edge": 4}})",
        R"({"size": {"max_height": 4, "max_width": 4}})", R"({"size": {"height": 4}})",
        R"({"size": [4, 4, 4]})", R"({"resample": 6})", R"({"resample": -1})",
        R"({"do_center_crop": true, "crop_size": {"shortest_edge": 4}})",
        R"({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 4, "width": 4}})"})
    EXPECT_EQ(id_of([&] { ImageProcessor(nlohmann::json::parse(text)); }), "G-IMG-6") << text;
  EXPECT_EQ(id_of([] { ImageProcessor::from_pretrained("/nowhere"); }), "G-IMG-6");
}

}  // namespace
}  // namespace gradus
