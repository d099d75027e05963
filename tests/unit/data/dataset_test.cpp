#include <gradus/core/error.h>
#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/images.h>
#include <gradus/data/mixing.h>
#include <gradus/data/packing.h>
#include <gradus/data/streams.h>

#include <gtest/gtest.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <functional>
#include <set>

#include "../error_of.h"

namespace gradus {
namespace {

using Rows = std::vector<int64_t>;

std::shared_ptr<Dataset> row_numbers(int64_t rows) {
  return from_tensors({{"row", torch::arange(rows)}});
}

Rows rows_of(const Dataset& dataset) {
  Rows result;
  for (int64_t i = 0; i < dataset.size(); ++i)
    result.push_back(dataset.get(i)["row"].to_tensor().item<int64_t>());
  return result;
}

Rows rows_of(IterableDataset& stream, int64_t epoch = 0) {
  Rows result;
  stream.reset(epoch);
  while (auto row = stream.next()) result.push_back((*row)["row"].to_tensor().item<int64_t>());
  return result;
}

TEST(Batch, KeepsItsOrderAndNamesWhatItHas) {
  Batch batch{{"input_ids", torch::ones({2, 3})}, {"labels", torch::zeros({2})}};
  batch.set("input_ids", torch::ones({4, 3}));
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"input_ids", "labels"}));
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(message_of("G-DATA-1", [&] { batch["label"]; }),
            "the batch has no 'label'; it has input_ids, labels");
  EXPECT_EQ(batch.pop("labels").numel(), 2);
  EXPECT_FALSE(batch.pop_or_undefined("labels").defined());
  EXPECT_EQ(message_of("G-DATA-1", [&] { Batch().pop("x"); }),
            "the batch has no 'x'; it has no entries");
}

TEST(Value, KnowsItsType) {
  EXPECT_EQ(message_of("G-DATA-2", [] { Value("text").integer(); }),
            "a value is text, expected int");
  EXPECT_EQ(message_of("G-DATA-2", [] { Value(nullptr).to_tensor(); }),
            "a value is null, expected a number, a list of numbers or a tensor");
  EXPECT_EQ(Value(true).integer(), 1);
  EXPECT_EQ(Value(3).number(), 3.0);
  EXPECT_EQ(Value(2.5).to_tensor().scalar_type(), at::kFloat);
  EXPECT_EQ(Value(false).to_tensor().scalar_type(), at::kBool);
  EXPECT_TRUE(at::equal(Value(Rows{1, 2}).to_tensor(), torch::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(Value::nested({{1, 2}, {3, 4}}).to_tensor(),
                        torch::tensor({1, 2, 3, 4}, at::kLong).view({2, 2})));
  EXPECT_EQ(Value::nested({{1, 2.5}}).to_tensor().scalar_type(), at::kFloat);
  EXPECT_EQ(message_of("G-DATA-7", [] { Value::nested({{1, 2}, {3}}).to_tensor(); }),
            "nested lists differ in length: expected 2, received 1");
  EXPECT_EQ(message_of("G-DATA-2", [] { Value::nested({{"a", 1}}).to_tensor(); }),
            "a nested value holds object, expected numbers");
}

TEST(Example, NamesTheMissingColumn) {
  Example row{{"text", "a"}, {"label", 1}};
  EXPECT_EQ(message_of("G-DATA-1", [&] { row["labels"]; }),
            "the row has no column 'labels'; it has text, label");
  row.set("text", 5);
  EXPECT_EQ(row.names(), (std::vector<std::string>{"text", "label"}));
  EXPECT_TRUE(row.erase("text"));
  EXPECT_FALSE(row.erase("text"));
}

TEST(Dataset, HasViews) {
  const auto data = row_numbers(10);
  EXPECT_EQ(rows_of(*data->select({3, 3, 0})), (Rows{3, 3, 0}));
  EXPECT_EQ(rows_of(*data->filter([](const Example& row) {
              return row["row"].to_tensor().item<int64_t>() % 4 == 0;
            })),
            (Rows{0, 4, 8}));
  EXPECT_EQ(rows_of(*data->shard(3, 0)), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(rows_of(*data->shard(3, 2)), (Rows{7, 8, 9}));
  EXPECT_EQ(rows_of(*data->shard(3, 1, false)), (Rows{1, 4, 7}));
  EXPECT_EQ(rows_of(*data->shard(3, 0, false)), (Rows{0, 3, 6, 9}));
  EXPECT_EQ(rows_of(*row_numbers(2)->shard(5, 4, false)), (Rows{}));
  EXPECT_EQ(rows_of(*concatenate({data->select({9}), data, data->select({})})),
            (Rows{9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(rows_of(*data->map([](const Example& row) {
                           return Example{{"row", row["row"].to_tensor() * 2}};
                         })
                         ->select({4})),
            (Rows{8}));
  EXPECT_EQ(message_of("G-DATA-4", [&] { data->get(10); }),
            "row 10 was requested, the data set has 10 rows (0 to 9)");
  EXPECT_EQ(message_of("G-DATA-4", [&] { data->select({-1}); }),
            "row -1 was requested, the data set has 10 rows (0 to 9)");
  EXPECT_EQ(message_of("G-DATA-4", [&] { data->shard(2, 2); }), "there is no shard 2 of 2");
  EXPECT_EQ(
      message_of("G-DATA-3", [] { from_tensors({{"a", torch::ones(3)}, {"b", torch::ones(4)}}); }),
      "column 'b' has 4 rows, column 'a' has 3");
  EXPECT_EQ(message_of("G-DATA-3", [] { from_tensors({{"a", torch::tensor(1)}}); }),
            "column 'a' is a scalar, expected a tensor with rows along its first dimension");
}

TEST(Dataset, GivesTheBatchOfTheDefaultCollatorWithoutRows) {
  const auto data = from_tensors({{"x", torch::randn({8, 3}).t().contiguous().t()},
                                  {"label", torch::arange(8, at::kInt)},
                                  {"extra", torch::rand({8})}});
  const Rows indices{5, 1, 1, 7};
  for (const std::shared_ptr<Dataset>& view :
       {data, data->select({7, 6, 5, 4, 3, 2, 1, 0}), data->remove_columns({"extra"}),
        data->select_columns({"x", "label"})}) {
    const auto fast = view->get_batch(indices);
    const auto slow = default_data_collator(view->get_many(indices));
    ASSERT_TRUE(fast.has_value());
    EXPECT_EQ(fast->names(), slow.names());
    for (const auto& [name, value] : slow) {
      EXPECT_TRUE(at::equal(fast->at(name), value)) << name;
      EXPECT_EQ(fast->at(name).scalar_type(), value.scalar_type()) << name;
    }
  }
  EXPECT_EQ(data->remove_columns({"extra"})->column_names(),
            (std::vector<std::string>{"x", "label"}));
  EXPECT_FALSE(data->map([](const Example& row) { return row; })->get_batch(indices).has_value());
}

TEST(Mixing, RefusesWhatCannotBe) {
  EXPECT_EQ(message_of("G-DATA-11", [] { train_test_split(row_numbers(5), {.test_size = 5}); }),
            "5 rows cannot be split with test_size 5: no rows would be left for training");
  EXPECT_EQ(message_of("G-DATA-11", [] { train_test_split(row_numbers(5), {.test_size = 0}); }),
            "5 rows cannot be split with test_size 0: it is neither a share nor a number of rows");
  EXPECT_EQ(
      message_of(
          "G-DATA-12",
          [] { interleave({row_numbers(5), row_numbers(3)}, {.probabilities = {0.5, 0.6}}); }),
      "2 probabilities with sum 1.1 for 2 data sets");
  EXPECT_EQ(message_of("G-DATA-12", [] { interleave({row_numbers(5), row_numbers(0)}); }),
            "data set 1 of 2 is empty and cannot be interleaved");
}

TEST(Mixing, NullPointersAreRefused) {
  const std::shared_ptr<const Dataset> none;
  const std::shared_ptr<IterableDataset> no_stream;
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"concatenate", [&] { concatenate({row_numbers(2), none}); }},
      {"interleave", [&] { interleave({row_numbers(2), none}); }},
      {"interleave", [&] { interleave(std::vector{no_stream}); }},
      {"shuffled", [&] { shuffled(none, 1); }},
      {"train_test_split", [&] { train_test_split(none); }},
      {"pack_dataset", [&] { pack_dataset(none, {}); }},
      {"as_stream", [&] { as_stream(none); }},
      {"a view of a stream", [&] { take_stream(no_stream, 3); }},
  };
  for (const auto& [name, call] : calls)
    EXPECT_EQ(message_of("G-DATA-16", call),
              std::string(name) + " was given no data set: the pointer is null");
}

std::vector<std::shared_ptr<IterableDataset>> two_streams() {
  return {as_stream(row_numbers(9)), as_stream(row_numbers(30)->select({20, 21, 22, 23, 24, 25}))};
}

TEST(Streams, Interleave) {
  EXPECT_EQ(rows_of(*interleave(two_streams())),
            (Rows{0, 20, 1, 21, 2, 22, 3, 23, 4, 24, 5, 25, 6}));
  const auto all = rows_of(*interleave(two_streams(), {.stopping = Stopping::all_exhausted}));
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 15u);
  const auto drawn = interleave(two_streams(), {.probabilities = {0.9, 0.1}, .seed = 4});
  EXPECT_EQ(rows_of(*drawn, 1), rows_of(*drawn, 1));
  EXPECT_NE(rows_of(*drawn, 1), rows_of(*drawn, 2));
}

TEST(Streams, GoOnFromTheirState) {
  const std::vector<std::pair<const char*, std::function<std::shared_ptr<IterableDataset>()>>>
      kinds{
          {"interleave",
           [] { return interleave(two_streams(), {.stopping = Stopping::all_exhausted}); }},
          {"weighted",
           [] { return interleave(two_streams(), {.probabilities = {0.3, 0.7}, .seed = 8}); }},
          {"shuffle", [] { return shuffle_stream(as_stream(row_numbers(25)), 7, 3); }},
          {"take", [] { return take_stream(as_stream(row_numbers(25)), 11, 4); }},
          {"map",
           [] {
             return map_stream(as_stream(row_numbers(9)), [](const Example& row) {
               return Example{{"row", row["row"].to_tensor() + 1}};
             });
           }},
          {"shard", [] { return shard_stream(as_stream(row_numbers(25)), 2, 1, 3); }},
          {"shuffled shard",
           [] { return shard_stream(shuffle_stream(as_stream(row_numbers(25)), 4, 1), 2, 0, 2); }},
      };
  for (const auto& [name, make] : kinds) {
    const auto whole = rows_of(*make(), 2);
    for (size_t stop = 0; stop <= whole.size(); ++stop) {
      auto first = make();
      first->reset(2);
      for (size_t i = 0; i < stop; ++i) first->next();
      const auto state = nlohmann::json::parse(first->save_state().dump());
      auto second = make();
      second->reset(2);
      second->load_state(state);
      Rows remaining;
      while (auto row = second->next())
        remaining.push_back((*row)["row"].to_tensor().item<int64_t>());
      EXPECT_EQ(remaining, Rows(whole.begin() + static_cast<ptrdiff_t>(stop), whole.end()))
          << name << " after " << stop;
    }
  }
}

TEST(Streams, KnowHowManyRowsTheyGive) {
  const auto rows = [] { return as_stream(row_numbers(25)); };
  const std::vector<std::shared_ptr<IterableDataset>> streams = {
      rows(),
      shuffle_stream(rows(), 7, 3),
      take_stream(rows(), 11),
      take_stream(rows(), 11, 20),
      take_stream(rows(), 11, 30),
      map_stream(rows(), [](const Example& row) { return row; }),
      shard_stream(rows(), 2, 0, 3),
      shard_stream(rows(), 2, 2, 3),
      shard_stream(rows(), 2, 1, 3, /*drop_last=*/true),
      take_stream(shuffle_stream(rows(), 4, 1), 9),
      interleave(two_streams()),
      interleave(two_streams(), {.stopping = Stopping::all_exhausted}),
      interleave({as_stream(row_numbers(2)), as_stream(row_numbers(2))}),
  };
  for (size_t i = 0; i < streams.size(); ++i)
    EXPECT_EQ(streams[i]->size(), int64_t(rows_of(*streams[i]).size())) << "stream " << i;
  EXPECT_EQ(filter_stream(rows(), [](const Example&) { return true; })->size(), std::nullopt);
  EXPECT_EQ(interleave(two_streams(), {.probabilities = {0.3, 0.7}, .seed = 8})->size(),
            std::nullopt);
}

TEST(Streams, ShuffleWithinTheirBuffer) {
  const auto stream = shuffle_stream(as_stream(row_numbers(100)), 10, 1);
  const auto order = rows_of(*stream, 0);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100u);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)] / 10, i / 10);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.begin() + 10));
  EXPECT_NE(order, rows_of(*stream, 1));
  EXPECT_EQ(order, rows_of(*stream, 0));
}

/// A folder that is removed again.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() /
             ("gradus_images_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(path / name, std::ios::binary) << content;
    return path / name;
  }
  std::filesystem::path write_gz(const std::string& name, const std::string& content) const {
    gzFile file = gzopen((path / name).c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    return path / name;
  }
  std::filesystem::path path;
};

std::string idx(std::initializer_list<int> shape, const std::string& values) {
  std::string result{0, 0, 8, static_cast<char>(shape.size())};
  for (const int size : shape) result += std::string{0, 0, 0, static_cast<char>(size)};
  return result + values;
}

// The header is looked at before anything is unpacked.
TEST(Example, OfManyColumnsIsAsOneOfFew) {
  Example row;
  for (int i = 0; i < 1000; ++i) row.set("c" + std::to_string(i), i);
  row.set("c500", "replaced");
  EXPECT_EQ(row.size(), 1000u);
  EXPECT_EQ(row.at("c999").integer(), 999);
  EXPECT_EQ(row.at("c500").str(), "replaced");
  EXPECT_EQ(row.find("c1000"), nullptr);
  EXPECT_TRUE(row.erase("c0"));
  EXPECT_FALSE(row.erase("c0"));
  EXPECT_EQ(row.names().front(), "c1");
  EXPECT_EQ(row.at("c999").integer(), 999);
  auto copy = row;
  copy.set("c0", 7);
  copy.set_value(0, 8);
  EXPECT_EQ(copy.names().back(), "c0");
  EXPECT_EQ(copy.at("c1").integer(), 8);
  EXPECT_FALSE(row.contains("c0"));
  const auto moved = std::move(copy);
  EXPECT_EQ(moved.at("c0").integer(), 7);
}

TEST(IdxImages, APackedFileIsNotUnpackedBeyondItsHeader) {
  const Folder folder;
  const auto labels = folder.write("labels", idx({2}, std::string("\x00\x01", 2)));
  const auto error = [&](const std::string& id, const std::filesystem::path& images) {
    return message_of(id, [&] { idx_images({.images = images, .labels = labels}); });
  };
  const std::string zeros(64 << 20, '\0');
  const auto other = folder.write_gz("other.gz", "text" + zeros);
  EXPECT_NE(error("G-DATA-22", other).find("begins with 0x74657874"), std::string::npos);
  const auto more = folder.write_gz("more.gz", idx({2, 1, 1}, "ab" + zeros));
  EXPECT_NE(error("G-DATA-21", more).find("more bytes of values, the header says 2 (2 x 1 x 1)"),
            std::string::npos);
  std::string claim{0, 0, 8, 3};
  for (int i = 0; i < 3; ++i) claim += std::string("\x7f\xff\xff\xff", 4);
  const auto large = folder.write_gz("large.gz", claim + "ab");
  EXPECT_NE(error("G-DATA-21", large).find("at most "), std::string::npos);
}

TEST(IdxImages, AreBytesTurnedIntoFloats) {
  const Folder folder;
  const auto images = folder.write_gz(
      "images.gz", idx({3, 2, 2}, std::string("\x00\xff\x33\x66", 4) + std::string(8, '\x80')));
  const auto labels = folder.write("labels", idx({3}, std::string("\x01\x00\x02", 3)));
  const auto data = idx_images({.images = images, .labels = labels, .num_labels = 3});
  EXPECT_EQ(data->size(), 3);
  const auto row = data->get(0);
  EXPECT_TRUE(at::allclose(row["pixel_values"].tensor(),
                           torch::tensor({-1.0f, 1.0f, -0.6f, -0.2f}).view({1, 2, 2})));
  EXPECT_EQ(row["labels"].integer(), 1);
  const auto batch = *data->get_batch(Rows{2, 0});
  EXPECT_EQ(batch["pixel_values"].sizes().vec(), (Rows{2, 1, 2, 2}));
  EXPECT_TRUE(at::equal(batch["labels"], torch::tensor({2, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(batch["pixel_values"][1], row["pixel_values"].tensor()));
}

TEST(IdxImages, SayWhatIsWrongWithAFile) {
  const Folder folder;
  const auto good = idx({2, 1, 1}, "ab");
  const auto labels = folder.write("labels", idx({2}, std::string("\x00\x01", 2)));
  const auto error = [&](const std::string& id, const std::filesystem::path& images,
                         const std::filesystem::path& names) {
    auto text =
        message_of(id, [&] { idx_images({.images = images, .labels = names, .num_labels = 2}); });
    for (auto at = text.find(folder.path.string() + "/"); at != std::string::npos;
         at = text.find(folder.path.string() + "/"))
      text.erase(at, folder.path.string().size() + 1);
    return text;
  };
  const auto images = folder.write("images", good);
  EXPECT_EQ(error("G-DATA-21", folder.write("short", good.substr(0, 17)), labels),
            "cannot read short: 1 bytes of values, the header says 2 (2 x 1 x 1)");
  EXPECT_EQ(error("G-DATA-21", folder.write("tiny", "abc"), labels),
            "cannot read tiny: 3 bytes, expected at least 16");
  EXPECT_EQ(error("G-DATA-21", folder.write("cut", good.substr(0, 10)), labels),
            "cannot read cut: 10 bytes, expected at least 16");
  EXPECT_EQ(error("G-DATA-22", labels, labels),
            "labels begins with 0x00000801, expected 0x00000803 (idx, bytes, 3 dimensions)");
  EXPECT_EQ(error("G-DATA-23", images, folder.write("three", idx({3}, std::string(3, '\0')))),
            "images has 2 images, three has 3 labels");
  EXPECT_EQ(error("G-DATA-24", images, folder.write("high", idx({2}, std::string("\x00\x07", 2)))),
            "high: label 7 of image 1 is out of range, expected 0 to 1");
  EXPECT_NE(error("G-IO-1", folder.path / "none", labels), "no error");
  const auto packed = folder.write_gz("packed.gz", idx({2, 1, 1}, "ab"));
  std::filesystem::resize_file(packed, 20);
  EXPECT_EQ(error("G-DATA-21", packed, labels),
            "cannot read packed.gz: the gzip stream ends too early");
}

TEST(FashionMnist, SaysHowToInstallIt) {
  try {
    fashion_mnist("/nowhere");
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-DATA-20");
    EXPECT_EQ(error.message(),
              "Fashion-MNIST is not installed: /nowhere has no train-images-idx3-ubyte.gz");
    EXPECT_NE(error.advice().find("apt-get install dataset-fashion-mnist"), std::string::npos);
  }
}

TEST(FashionMnist, HasTwoParts) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  const auto data = fashion_mnist();
  EXPECT_EQ(data.train->size(), 60000);
  EXPECT_EQ(data.test->size(), 10000);
  Rows all(10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const auto batch = *data.train->get_batch(all);
  EXPECT_NEAR(batch["pixel_values"].mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(batch["pixel_values"].std().item<double>(), 1, 0.02);
  EXPECT_EQ(batch["labels"].max().item<int64_t>(), 9);
}

}  // namespace
}  // namespace gradus
