// Arrow files whose offsets, views, type ids or runs lie: G-SRC-8, and never bytes of another
// place.
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../../silent_log.h"
#include "../error_of.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

const std::filesystem::path kSeeds =
    std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/fuzz/seeds/arrow";

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes;
  for (const auto value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

// A seed in which `old` has become `fresh`, wherever it is.
std::string damaged_seed(const TemporaryFolder& folder, const std::string& name,
                         const std::string& old, const std::string& fresh) {
  auto bytes = content_of(kSeeds / (name + ".arrow"));
  EXPECT_NE(bytes.find(old), std::string::npos) << name << " does not have these bytes";
  EXPECT_EQ(old.size(), fresh.size());
  for (auto at = bytes.find(old); at != std::string::npos; at = bytes.find(old, at + 1))
    bytes.replace(at, old.size(), fresh);
  return folder.write(name + ".arrow", bytes);
}

void read_all_rows(const std::string& file) {
  const auto rows = load_dataset(file);
  for (int64_t i = 0; i < rows->size(); ++i) rows->get(i);
}

struct Damage {
  const char* seed;
  std::string old, fresh;
};

class ArrowDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(ArrowDamage, IsAnError) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto& [seed, old, fresh] = GetParam();
  EXPECT_NO_THROW(read_all_rows((kSeeds / (std::string(seed) + ".arrow")).string()));
  const auto file = damaged_seed(folder, seed, old, fresh);
  const auto message = message_of("G-SRC-8", [&] { read_all_rows(file); });
  EXPECT_NE(message.find(seed), std::string::npos) << message;
}

// A view is length, first four bytes, number of the buffer, offset in it.
const auto kView = bytes_of<int32_t>({32}) + "a te" + bytes_of<int32_t>({0});

INSTANTIATE_TEST_SUITE_P(
    Kinds, ArrowDamage,
    ::testing::Values(
        Damage{"string_view", kView + bytes_of<int32_t>({0}), kView + bytes_of<int32_t>({1 << 30})},
        Damage{"string_view", kView,
               bytes_of<int32_t>({32}) + "a te" + bytes_of<int32_t>({1 << 20})},
        Damage{"binary_view", kView,
               bytes_of<int32_t>({1 << 30}) + "a te" + bytes_of<int32_t>({0})},
        Damage{"list_view", bytes_of<int32_t>({0, 2, 0, 4, 1, 0}),
               bytes_of<int32_t>({0, 2, 0, 1 << 28, 1, 0})},
        Damage{"list_view", bytes_of<int32_t>({2, 2, 5, 1, 0, 1}),
               bytes_of<int32_t>({2, 2, 5, 1, 0, 1 << 28})},
        Damage{"large_list_view", bytes_of<int64_t>({3, 0, 0, 4, 1, 0}),
               bytes_of<int64_t>({3, 0, -1, 4, 1, 0})},
        Damage{"dense_union", bytes_of<int8_t>({0, 1, 0, 1, 1, 0}),
               bytes_of<int8_t>({0, 1, 0, 7, 1, 0})},
        Damage{"dense_union", bytes_of<int32_t>({0, 0, 1, 1, 2, 2}),
               bytes_of<int32_t>({0, 0, 1, 1, 2, 1 << 28})},
        Damage{"sparse_union", bytes_of<int8_t>({0, 1, 0, 1, 1, 0}),
               bytes_of<int8_t>({0, 1, 0, -1, 1, 0})},
        Damage{"run_end_encoded", bytes_of<int32_t>({2, 3, 6}), bytes_of<int32_t>({2, 1, 6})},
        Damage{"run_end_encoded", bytes_of<int32_t>({2, 3, 6}), bytes_of<int32_t>({2, 3, 4})},
        Damage{"list", bytes_of<int32_t>({0, 2, 2, 2, 3, 5, 8}),
               bytes_of<int32_t>({0, 2, 2, 2, 3, 1 << 28, 8})},
        Damage{"string", bytes_of<int32_t>({0, 1, 1, 1, 33}),
               bytes_of<int32_t>({0, 1, 1, 1, 1 << 28})},
        Damage{"list_of_view", kView,
               bytes_of<int32_t>({1 << 30}) + "a te" + bytes_of<int32_t>({0})},
        Damage{"dictionary_of_view", kView,
               bytes_of<int32_t>({1 << 30}) + "a te" + bytes_of<int32_t>({0})}));

TEST(ArrowBatches, AreCheckedOnceAndFromManyThreads) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto file = damaged_seed(folder, "list_view", bytes_of<int32_t>({2, 2, 5, 1, 0, 1}),
                                 bytes_of<int32_t>({2, 2, 5, 1, 0, 1 << 28}));
  const auto bad = load_dataset(file);
  const auto good = load_dataset((kSeeds / "struct_of_dictionary.arrow").string());
  std::atomic<int> errors = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int64_t row = 0; row < 6; ++row) {
        good->get(row);
        try {
          bad->get(row);
        } catch (const Error& error) {
          errors += error.id() == "G-SRC-8";
        }
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 24);
}

TEST(ArrowBatches, OnlyTheDamagedOneIsAnError) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  auto bytes = content_of(kSeeds / "list_view.arrow");  // two batches; the second is a part of the
  const auto sizes = bytes_of<int32_t>({2, 2, 5, 1, 0, 1});  // first
  bytes.replace(bytes.find(sizes), sizes.size(), bytes_of<int32_t>({2, 2, 5, 1, 0, 1 << 28}));
  const auto rows = load_dataset(folder.write("a.arrow", bytes));
  ASSERT_EQ(rows->size(), 9);
  EXPECT_THROW(rows->get(0), Error);
  EXPECT_NO_THROW(rows->get(8));
}

TEST(ArrowBatches, HaveNoNegativeNumberOfRows) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  const auto three = bytes_of<int64_t>({3}), negative = bytes_of<int64_t>({INT64_MIN + 3});
  int refused = 0;
  for (const auto& seed : std::filesystem::directory_iterator(kSeeds)) {
    const auto whole = content_of(seed.path());
    for (auto at = whole.find(three); at != whole.npos; at = whole.find(three, at + 1)) {
      auto bytes = whole;
      bytes.replace(at, 8, negative);
      const auto file = folder.write("damaged.arrow", bytes);
      try {
        EXPECT_GE(load_dataset(file)->size(), 0) << seed.path() << " byte " << at;
      } catch (const Error& error) {
        refused += error.message().find("negative number of rows") != std::string::npos;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace gradus
