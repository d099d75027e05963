// The checkpoint folder: listing, rotation (peer-tests.md 50, 51), the manifest, and writes that
// fail.
#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace gradus {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints()
      : folder_(fs::temp_directory_path() /
                ("gradus-checkpoint-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Checkpoints() override { fs::remove_all(folder_); }

  void make(const std::vector<int64_t>& steps) {
    for (const auto step : steps) fs::create_directories(checkpoint_path(folder_, step));
  }
  std::vector<int64_t> there() const {
    std::vector<int64_t> steps;
    for (const auto& dir : list_checkpoints(folder_)) steps.push_back(dir.step);
    return steps;
  }
  static Snapshot snapshot(float value = 1) {
    Snapshot all;
    all.files.push_back([weights = torch::full({4}, value)](const fs::path& folder) {
      WrittenFiles written;
      for (const auto& shard : write_safetensors_folder(folder, {{"w", weights}}))
        written[shard.file_name] = shard.written;
      return written;
    });
    all.files.push_back(
        torch_file_writer("optimizer.pt", StateTree::dict().set("state", StateTree::dict())));
    all.files.push_back(torch_file_writer("scheduler.pt", StateTree::dict().set("last_epoch", 3)));
    all.files.push_back(text_file_writer("trainer_state.json", "{}\n"));
    return all;
  }
  void write(int64_t step, float value = 1, std::optional<int64_t> limit = {}) {
    CheckpointWriter writer;
    writer.start({folder_, step, snapshot(value), RotationPolicy(limit), std::nullopt});
    writer.wait();
  }
  fs::path folder_;
};

using Rotation = Checkpoints;

TEST_F(Rotation, TestCheckpointSorting) {
  make({20, 5, 15, 25, 10});
  fs::create_directories(folder_ / "checkpoint-x");
  fs::create_directories(folder_ / "checkpoint-7-old");
  std::ofstream(folder_ / "checkpoint-30") << "a file";
  EXPECT_EQ(there(), (std::vector<int64_t>{5, 10, 15, 20, 25}));
  EXPECT_EQ(newest_checkpoint(folder_)->step, 25);
  EXPECT_EQ(list_checkpoints(folder_ / "nowhere").size(), 0U);
}

TEST_F(Rotation, TestCheckpointRotation) {
  struct Case {
    std::optional<int64_t> limit, best;
    std::vector<int64_t> kept;
  };
  make({5, 10, 15, 20, 25});
  for (const auto& each : {Case{2, {}, {20, 25}}, Case{2, 5, {5, 25}}, Case{1, 25, {25}},
                           Case{1, 5, {5, 25}}, Case{{}, {}, {5, 10, 15, 20, 25}},
                           Case{0, {}, {5, 10, 15, 20, 25}}, Case{3, 10, {10, 20, 25}}}) {
    const auto best =
        each.best ? std::optional(checkpoint_path(folder_, *each.best)) : std::nullopt;
    auto left = there();
    for (const auto& dir : RotationPolicy(each.limit).to_delete(list_checkpoints(folder_), best))
      std::erase(left, dir.step);
    EXPECT_EQ(left, each.kept);
  }
}

TEST_F(Rotation, StepsBeyondTheOneJustSavedAreOfARunThatWasLeft) {
  make({100, 800, 900});
  write(200, 1, 2);
  EXPECT_EQ(there(), (std::vector<int64_t>{100, 200})) << "what was just saved stays";
  make({900});
  const RotationPolicy one(1);
  const auto doomed = one.to_delete(list_checkpoints(folder_), checkpoint_path(folder_, 900), 200);
  EXPECT_EQ(doomed, (std::vector<CheckpointDir>{{checkpoint_path(folder_, 100), 100}}))
      << "the best one is kept wherever it comes from";
}

TEST_F(Checkpoints, AreCompleteOrAbsent) {
  write(3);
  EXPECT_TRUE(verify_checkpoint(checkpoint_path(folder_, 3), Verify::full).complete());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing temporary is left";
  write(3, 2);
  EXPECT_EQ(read_safetensors_folder(checkpoint_path(folder_, 3)).front().second[0].item<float>(), 2)
      << "the same step again replaces it";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  write(4, 1, 1);
  EXPECT_EQ(there(), std::vector<int64_t>{4});
}

TEST_F(Checkpoints, VerifySaysWhatIsWrong) {
  write(3);
  const auto dir = checkpoint_path(folder_, 3);
  const auto problem = [&](Verify depth) {
    const auto problems = verify_checkpoint(dir, depth).problems;
    return problems.size() == 1 ? problems.front() : std::to_string(problems.size()) + " problems";
  };
  auto text = read_file(dir / "scheduler.pt");
  text[text.size() / 2] = char(text[text.size() / 2] ^ 1);
  std::ofstream(dir / "scheduler.pt", std::ios::binary) << text;
  EXPECT_EQ(problem(Verify::quick), "0 problems") << "quick looks at sizes";
  EXPECT_TRUE(problem(Verify::full).starts_with("scheduler.pt has checksum crc32:"));
  fs::resize_file(dir / "scheduler.pt", 10);
  EXPECT_TRUE(problem(Verify::quick).starts_with("scheduler.pt is 10 bytes, manifest.json says "));
  fs::remove(dir / "scheduler.pt");
  EXPECT_EQ(problem(Verify::full), "scheduler.pt is missing");
  EXPECT_FALSE(newest_complete_checkpoint(folder_));
  std::ofstream(dir / "manifest.json")
      << R"({"format": "gradus-checkpoint", "version": 99, "files": {}})";
  EXPECT_NE(problem(Verify::full)
                .find("is not a manifest that this version reads: its version is not 1 or below"),
            std::string::npos);
  EXPECT_EQ(verify_checkpoint(folder_ / "none", Verify::full).problems.front(),
            "there is no such folder");
}

TEST_F(Checkpoints, PythonsNeedWeightsAndAState) {
  make({3});
  const auto dir = checkpoint_path(folder_, 3);
  EXPECT_EQ(verify_checkpoint(dir, Verify::full).problems.size(), 2U);
  std::ofstream(dir / "pytorch_model.bin") << "x";
  std::ofstream(dir / "trainer_state.json") << "{}";
  EXPECT_TRUE(verify_checkpoint(dir, Verify::full).complete());
  std::ofstream(dir / "checkpoint-is-incomplete.txt") << "x";
  EXPECT_EQ(verify_checkpoint(dir, Verify::full).problems.front(),
            "checkpoint-is-incomplete.txt says that its save was cut short");
}

TEST_F(Checkpoints, AFailedWriteLeavesTheOlderOnesAlone) {
  write(1);
  CheckpointWriter writer;
  auto bad = snapshot();
  bad.files.push_back(text_file_writer("no/such/folder.json", "x"));
  writer.start({folder_, 2, std::move(bad), RotationPolicy(1), std::nullopt});
  try {
    writer.wait();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-CKPT-6");
    EXPECT_TRUE(error.message().starts_with("a checkpoint could not be saved: "))
        << error.message();
    EXPECT_TRUE(error.advice().starts_with("Earlier checkpoints are unchanged.")) << error.advice();
  }
  EXPECT_EQ(there(), std::vector<int64_t>{1});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_NO_THROW(writer.wait()) << "said once";
}

TEST_F(Checkpoints, LeftoversOfAKilledProcessAreRemoved) {
  fs::create_directories(folder_ / ".tmp-checkpoint-5-999999999");
  fs::create_directories(folder_ / ".tmp-checkpoint-5-1");  // process 1 lives
  fs::create_directories(folder_ / "other");
  remove_unfinished(folder_);
  EXPECT_FALSE(fs::exists(folder_ / ".tmp-checkpoint-5-999999999"));
  EXPECT_TRUE(fs::exists(folder_ / ".tmp-checkpoint-5-1"));
  EXPECT_TRUE(fs::exists(folder_ / "other"));
}

TEST_F(Checkpoints, ARemovedOneLeavesNothing) {
  fs::create_directories(folder_ / "checkpoint-5" / "inside");
  fs::create_directories(folder_ / "checkpoint-10");
  for (const auto& dir : list_checkpoints(folder_)) remove_checkpoint(dir);
  remove_checkpoint({folder_ / "checkpoint-7", 7});  // not there: nothing happens
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Checkpoints, AStagedFolderAppearsWhenItIsPublished) {
  const auto final_path = folder_ / "model";
  for (const char* text : {"first", "second"}) {
    StagedFolder staged(final_path);
    write_file_atomically(staged.path() / "file.txt", text);
    EXPECT_EQ(fs::exists(final_path / "file.txt"), text == std::string("second"));
    staged.publish();
    EXPECT_EQ(read_file(final_path / "file.txt"), text);
  }
  {
    const StagedFolder given_up(folder_ / "other");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST_F(Checkpoints, SnapshotsAreCopies) {
  SnapshotBuffers buffers;
  auto weight = torch::ones({3});
  const auto copy = buffers.copy(NamedTensors{{"w", weight}});
  weight.fill_(7);
  EXPECT_EQ(copy.front().second[0].item<float>(), 1);
  buffers.begin();
  EXPECT_EQ(buffers.copy(weight).data_ptr(), copy.front().second.data_ptr())
      << "the memory is used again";
  const auto tree = StateTree::dict().set("t", StateTree::Tuple{{StateTree(weight), StateTree(2)}});
  buffers.begin();
  const auto copied = buffers.copy(tree);
  weight.fill_(9);
  EXPECT_EQ(copied.at("t").items()[0].as_tensor()[0].item<float>(), 7);
  EXPECT_TRUE(copied.at("t").is_tuple());
}

}  // namespace
}  // namespace gradus
