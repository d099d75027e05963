// RunCheckpoint with parts of a test's own: no Trainer, no model.
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/engine/run_checkpoint.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Weights {
  torch::Tensor values = torch::zeros({4});
  StateTree state() const { return StateTree::dict().set("values", values); }
  void load(const StateTree& state) { values.copy_(state.at("values").as_tensor()); }
};

struct Counters {
  int64_t steps = 0;
  json state() const { return {{"steps", steps}}; }
  void load(const json& state) { steps = state.at("steps"); }
};

class RunCheckpoints : public ::testing::Test {
 protected:
  RunCheckpoints()
      : run_(fs::temp_directory_path() /
             ("gradus-engine-" + std::to_string(::getpid()) + "-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(run_);
  }
  ~RunCheckpoints() override { fs::remove_all(run_); }

  fs::path run_;
  CheckpointWriter writer_;
};

TEST_F(RunCheckpoints, EveryPartComesBackAsItWasSaved) {
  Weights weights;
  Counters counters;
  RunCheckpoint checkpoint(writer_);
  checkpoint.add("weights.pt", weights);
  checkpoint.add("counters.json", counters);
  for (const int64_t step : {1, 2}) {
    weights.values.fill_(double(step));
    counters.steps = step;
    checkpoint.save({.run_dir = run_, .step = step});
    weights.values.fill_(-1);  // the save has its own copy
    counters.steps = -1;
  }
  checkpoint.wait();
  for (const int64_t step : {1, 2}) {
    const auto folder = checkpoint_path(run_, step);
    EXPECT_TRUE(verify_checkpoint(folder, Verify::full).complete());
    EXPECT_TRUE(checkpoint.restore(folder).empty());
    EXPECT_EQ(weights.values[3].item<double>(), double(step));
    EXPECT_EQ(counters.steps, step);
  }
  EXPECT_EQ(read_file(checkpoint_path(run_, 2) / "counters.json"), "{\n  \"steps\": 2\n}\n");
}

TEST_F(RunCheckpoints, PartsAreRestoredInTheOrderTheyWereAdded) {
  std::vector<std::string> order;
  RunCheckpoint checkpoint(writer_);
  for (const std::string name : {"c.json", "a.json", "b.json"})
    checkpoint.add(name,
                   RunCheckpoint::Part<json>{[] { return json(1); },
                                             [&, name](const json&) { order.push_back(name); }});
  checkpoint.save({.run_dir = run_, .step = 1});
  checkpoint.wait();
  checkpoint.restore(checkpoint_path(run_, 1));
  EXPECT_EQ(order, (std::vector<std::string>{"c.json", "a.json", "b.json"}));
}

TEST_F(RunCheckpoints, APartWithoutAStateHasNoFileAndStaysAsItIs) {
  bool loaded = false;
  RunCheckpoint checkpoint(writer_);
  checkpoint.add("scaler.pt",
                 RunCheckpoint::Part<StateTree>{[] { return std::nullopt; },
                                                [&](const StateTree&) { loaded = true; }});
  checkpoint.add("written_only.json", RunCheckpoint::Part<json>{[] { return json(1); }, {}});
  checkpoint.save({.run_dir = run_, .step = 1});
  checkpoint.wait();
  const auto folder = checkpoint_path(run_, 1);
  EXPECT_FALSE(fs::exists(folder / "scaler.pt"));
  EXPECT_TRUE(fs::exists(folder / "written_only.json"));
  EXPECT_EQ(checkpoint.restore(folder), std::vector<std::string>{"scaler.pt"});
  EXPECT_FALSE(loaded);
}

TEST_F(RunCheckpoints, APartMayWriteFilesInAFormOfItsOwn) {
  auto tensor = torch::ones({2});
  RunCheckpoint checkpoint(writer_);
  checkpoint.add([&](SnapshotBuffers& buffers, Snapshot& snapshot) {
    snapshot.side_files.push_back(
        [](const fs::path& folder) { write_file_atomically(folder / "config.json", "{}"); });
    snapshot.files.push_back([copy = buffers.copy(tensor)](const fs::path& folder) {
      return WrittenFiles{
          {"raw.safetensors", write_safetensors(folder / "raw.safetensors", {{"t", copy}})}};
    });
  });
  checkpoint.save({.run_dir = run_, .step = 3});
  tensor.fill_(9);
  checkpoint.wait();
  const auto folder = checkpoint_path(run_, 3);
  EXPECT_EQ(verify_checkpoint(folder, Verify::full).files.size(), 2U);
  EXPECT_EQ(read_safetensors(folder / "raw.safetensors").tensors.front().second[0].item<float>(),
            1);
}

TEST_F(RunCheckpoints, AFileThatLacksAKeyIsNamed) {
  Counters counters;
  RunCheckpoint checkpoint(writer_);
  checkpoint.add("counters.json", counters);
  fs::create_directories(run_);
  write_file_atomically(run_ / "counters.json", "{\"epochs\": 3}");
  expect_error([&] { checkpoint.restore(run_); }, "G-CKPT-5",
               {(run_ / "counters.json").string() + " lacks something a resume needs: "});
}

TEST_F(RunCheckpoints, OlderOnesMakeWayAndTheBestStays) {
  Counters counters;
  RunCheckpoint checkpoint(writer_);
  checkpoint.add("counters.json", counters);
  for (const int64_t step : {1, 2, 3, 4})
    checkpoint.save({.run_dir = run_,
                     .step = step,
                     .rotation = RotationPolicy(2),
                     .best = checkpoint_path(run_, 1)});
  checkpoint.wait();
  std::vector<int64_t> left;
  for (const auto& dir : list_checkpoints(run_)) left.push_back(dir.step);
  EXPECT_EQ(left, (std::vector<int64_t>{1, 4}));
}

}  // namespace
}  // namespace gradus
