#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/sharded_folder.h>
#include <gradus/formats/torch_file.h>
#include <gradus/formats/weights_folder.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

/// A folder of two processes: a weight of six values, cut at the fourth, one of process 1 alone and
/// one that is whole; the state of the first two, with two rows for each value in "both".
class ShardedFolderTest : public testing::Test {
 protected:
  ShardedFolderTest() {
    fs::remove_all(folder);
    fs::create_directories(folder);
    const auto weight = torch::arange(6, torch::kFloat), late = torch::ones({2}) * 7;
    const auto part = [](int64_t begin, const torch::Tensor& values) {
      return StateTree::dict().set("begin", begin).set("part", values);
    };
    const auto state = [](const torch::Tensor& values) {
      return StateTree::dict()
          .set("step", torch::tensor(3.0F))
          .set("exp_avg", values)
          .set("both", torch::stack({values, values * 10}));
    };
    auto groups = StateTree::list();
    groups.push(StateTree::dict().set("lr", 0.5));
    const auto tree = [&](StateTree weights, StateTree whole, StateTree states, StateTree begins) {
      return StateTree::dict()
          .set("weights", std::move(weights))
          .set("whole", std::move(whole))
          .set("optimizer",
               StateTree::dict().set("state", std::move(states)).set("param_groups", groups))
          .set("begins", std::move(begins));
    };
    write_torch_file(folder / ShardedFolder::file_name(0, 2),
                     tree(StateTree::dict().set("w", part(0, weight.slice(0, 0, 4).clone())),
                          StateTree::dict().set("buffer", torch::full({1}, 9)),
                          StateTree::dict().set(0, state(weight.slice(0, 0, 4).clone())),
                          StateTree::dict().set(0, 0)));
    write_torch_file(
        folder / ShardedFolder::file_name(1, 2),
        tree(StateTree::dict()
                 .set("w", part(4, weight.slice(0, 4).clone()))
                 .set("late", part(0, late)),
             StateTree::dict(),
             StateTree::dict().set(0, state(weight.slice(0, 4).clone())).set(1, state(late)),
             StateTree::dict().set(0, 4).set(1, 0)));
    const nlohmann::json index = {{"version", 1},
                                  {"processes", 2},
                                  {"stem", "model"},
                                  {"weights",
                                   {{{"name", "w"}, {"shape", {2, 3}}},
                                    {{"name", "late"}, {"shape", {2}}},
                                    {{"name", "buffer"}, {"shape", {1}}}}},
                                  {"parameters", {{2, 3}, {2}}}};
    write_file_atomically(folder / ShardedFolder::kIndex, dump_json(index));
  }
  ~ShardedFolderTest() override { fs::remove_all(folder); }

  fs::path folder = fs::temp_directory_path() / "gradus_sharded_folder_test";
};

TEST_F(ShardedFolderTest, PutsWeightsTogether) {
  const auto weights = read_weights_folder(folder);
  ASSERT_EQ(weights.size(), 3U);
  EXPECT_TRUE(torch::equal(weights[0].second, torch::arange(6, torch::kFloat).view({2, 3})));
  EXPECT_TRUE(torch::equal(weights[1].second, torch::full({2}, 7.0)));
  EXPECT_TRUE(torch::equal(weights[2].second, torch::full({1}, 9)));
}

TEST_F(ShardedFolderTest, PutsTheOptimizersStateTogether) {
  const auto tree = ShardedFolder(folder).optimizer();
  const auto& first = tree.at("state").at(0);
  EXPECT_EQ(first.at("step").as_double(), 3);
  const auto values = torch::arange(6, torch::kFloat).view({2, 3});
  EXPECT_TRUE(torch::equal(first.at("exp_avg").as_tensor(), values));
  EXPECT_TRUE(torch::equal(first.at("both").as_tensor(), torch::stack({values, values * 10})));
  EXPECT_EQ(tree.at("param_groups").items()[0].at("lr").as_double(), 0.5);
}

TEST_F(ShardedFolderTest, GivesTheValuesThatAreAskedFor) {
  const auto tree = ShardedFolder(folder).optimizer([](int64_t number) -> ShardedFolder::Range {
    return number == 0 ? std::pair<int64_t, int64_t>(3, 2) : std::pair<int64_t, int64_t>(0, 0);
  });
  EXPECT_TRUE(
      torch::equal(tree.at("state").at(0).at("exp_avg").as_tensor(), torch::tensor({3.0F, 4.0F})));
  EXPECT_FALSE(tree.at("state").contains(1)) << "nothing of it was asked for";
}

TEST_F(ShardedFolderTest, SaysWhatIsMissing) {
  fs::remove(folder / ShardedFolder::file_name(1, 2));
  const auto error = id_and_message_of([&] { read_weights_folder(folder); });
  EXPECT_NE(error.find("G-ST-7"), std::string::npos) << error;
  EXPECT_NE(error.find("gradus_shard_00001-of-00002.pt is missing"), std::string::npos) << error;
}

}  // namespace
}  // namespace gradus
