// The checkpoint folder: listing, rotation (peer-tests.md 50, 51), the manifest, and writes that
// fail.
#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/formats/torch_file.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <mutex>

#include "../error_of.h"

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

TEST_F(Checkpoints, AFolderThatCannotBeListedIsNotTakenForEmpty) {
  make({3, 6});
  StagedFolder staged(folder_ / "checkpoint-9");
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto no_files = [&](const auto& call) {
    const rlimit none{0, limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto error = error_of(call);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return error;
  };
  EXPECT_NE(no_files([&] { list_checkpoints(folder_); }).find("Too many open files"),
            std::string::npos);
  EXPECT_NE(no_files([&] { staged.publish(); }).find("Too many open files"), std::string::npos);
  EXPECT_EQ(there(), (std::vector<int64_t>{3, 6}));
  EXPECT_TRUE(list_checkpoints(folder_ / "none").empty());
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

TEST_F(Checkpoints, AManifestThatMakesNoSenseIsAProblemWithAName) {
  write(5);
  const auto manifest = checkpoint_path(folder_, 5) / "manifest.json";
  const auto problem = [&](const std::string& text) {
    std::ofstream(manifest) << text;
    const auto report = verify_checkpoint(checkpoint_path(folder_, 5), Verify::full);
    return report.problems.size() == 1 ? report.problems[0] : "no problem";
  };
  const std::string file = R"({"a": {"size": 1, "checksum": "crc32:00"}})";
  EXPECT_NE(
      problem(R"({"format": 5, "version": 1, "files": )" + file + "}").find("is not a manifest"),
      std::string::npos);
  EXPECT_NE(problem(R"({"format": "gradus-checkpoint", "version": 1, "files": {}})")
                .find("it names no files"),
            std::string::npos);
  EXPECT_NE(problem(R"({"format": "gradus-checkpoint", "version": 1,
                        "files": {"a": {"size": 1, "checksum": "crc32:xyz"}}})")
                .find("the checksum of a is not a number"),
            std::string::npos);
}

TEST_F(Checkpoints, ALinkToNowhereIsNotOneAndIsNamed) {
  struct Lines : LogSink {
    void message(LogLevel, std::string_view line) override { said += std::string(line) + "\n"; }
    void print(std::string_view) override {}
    std::string said;
  };
  make({5});
  fs::create_directory_symlink(folder_ / "nowhere", checkpoint_path(folder_, 10));
  const auto lines = std::make_shared<Lines>();
  const auto former = set_log_sink(lines);
  EXPECT_EQ(there(), std::vector<int64_t>{5});
  set_log_sink(former);
  EXPECT_NE(lines->said.find("checkpoint-10 is a link to"), std::string::npos) << lines->said;
  EXPECT_NE(lines->said.find("nowhere, which does not exist"), std::string::npos) << lines->said;
}

TEST_F(Checkpoints, PythonsNeedWeightsAndAState) {
  make({3});
  const auto dir = checkpoint_path(folder_, 3);
  EXPECT_EQ(verify_checkpoint(dir, Verify::full).problems.size(), 2U);
  write_torch_file(dir / "pytorch_model.bin", StateTree::dict().set("w", torch::ones({4})));
  std::ofstream(dir / "trainer_state.json") << "{}";
  EXPECT_TRUE(verify_checkpoint(dir, Verify::full).complete());
  std::ofstream(dir / "checkpoint-is-incomplete.txt") << "x";
  EXPECT_EQ(verify_checkpoint(dir, Verify::full).problems.front(),
            "checkpoint-is-incomplete.txt says that its save was cut short");
}

TEST_F(Checkpoints, PythonsMayNotBeCutShort) {
  make({3});
  const auto dir = checkpoint_path(folder_, 3);
  const auto state = StateTree::dict().set("w", torch::ones({64}));
  write_safetensors(dir / "model.safetensors", {{"w", torch::ones({64})}});
  for (const char* name : {"optimizer.pt", "rng_state.pth", "training_args.bin"})
    write_torch_file(dir / name, state);
  std::ofstream(dir / "trainer_state.json") << "{\"global_step\": 3}";
  std::ofstream(dir / "notes.bin") << "not of torch";
  ASSERT_EQ(verify_checkpoint(dir, Verify::full).problems, std::vector<std::string>());
  for (const char* name : {"model.safetensors", "optimizer.pt", "rng_state.pth",
                           "training_args.bin", "trainer_state.json"}) {
    const auto whole = read_file(dir / name);
    for (const size_t size : {size_t{0}, whole.size() / 2, whole.size() - 1}) {
      fs::resize_file(dir / name, size);
      const auto problems = verify_checkpoint(dir, Verify::quick).problems;
      ASSERT_EQ(problems.size(), 1U) << name << " of " << size << " bytes";
      EXPECT_TRUE(problems[0].starts_with(std::string(name) + ": ")) << problems[0];
      std::ofstream(dir / name, std::ios::binary) << whole;
    }
  }
  EXPECT_TRUE(verify_checkpoint(dir, Verify::full).complete());
  fs::remove(dir / "trainer_state.json");
  EXPECT_EQ(verify_checkpoint(dir, Verify::full).problems.front(), "trainer_state.json is missing");
}

// Notes what is logged; the writer's thread logs, too.
struct Listener : LogSink {
  void message(LogLevel, std::string_view line) override {
    const std::scoped_lock lock(mutex);
    lines.emplace_back(line);
  }
  void print(std::string_view) override {}
  std::mutex mutex;
  std::vector<std::string> lines;
};

TEST_F(Checkpoints, AFailureIsSaidAtOnceAndTheNextSaveIsTried) {
  const auto listener = std::make_shared<Listener>();
  const auto former = set_log_sink(listener);
  CheckpointWriter writer;
  write(1);
  auto bad = snapshot();
  std::promise<void> fails;
  bad.files.push_back([&](const fs::path&) -> WrittenFiles {
    fails.get_future().wait();
    throw Error("G-IO-2", ErrorKind::io, "cannot write x: No space left on device", "Free some.");
  });
  writer.start({folder_, 2, std::move(bad), RotationPolicy(1), std::nullopt, "The run goes on."});
  EXPECT_FALSE(writer.take_outcome()) << "it is still being written";
  fails.set_value();
  const auto outcome = writer.wait_for_outcome();
  ASSERT_TRUE(outcome && outcome->failure);
  EXPECT_EQ(outcome->step, 2);
  EXPECT_EQ(outcome->failure->id(), "G-CKPT-6");
  EXPECT_FALSE(writer.take_outcome()) << "given once";
  EXPECT_NO_THROW(writer.wait());
  ASSERT_EQ(listener->lines.size(), 1U);
  EXPECT_EQ(listener->lines[0],
            checkpoint_path(folder_, 2).string() +
                " could not be saved: cannot write x: No space left on device [G-CKPT-6]. Earlier "
                "checkpoints are unchanged. Free some. The run goes on.");
  EXPECT_EQ(there(), std::vector<int64_t>{1}) << "nothing is rotated away for it";

  writer.start({folder_, 3, snapshot(), RotationPolicy(1), std::nullopt});
  const auto good = writer.wait_for_outcome();
  ASSERT_TRUE(good && !good->failure);
  EXPECT_EQ(good->step, 3);
  EXPECT_EQ(there(), std::vector<int64_t>{3});
  set_log_sink(former);
}

TEST_F(Checkpoints, WhatFailsBeforeTheThreadIsAFailedSave) {
  const auto former = set_log_sink(std::make_shared<Listener>());
  CheckpointWriter writer;
  auto bad = snapshot();
  bad.side_files.push_back([](const fs::path&) { throw std::runtime_error("no config"); });
  EXPECT_NO_THROW(writer.start({folder_, 2, std::move(bad), RotationPolicy(1), std::nullopt}));
  const auto outcome = writer.take_outcome();
  ASSERT_TRUE(outcome && outcome->failure);
  EXPECT_EQ(outcome->failure->message(), "a checkpoint could not be saved: no config");
  EXPECT_TRUE(fs::is_empty(folder_));
  set_log_sink(former);
}

TEST_F(Checkpoints, ALinkOfTheNameMakesWay) {
  fs::create_directory_symlink(folder_ / "nowhere", checkpoint_path(folder_, 3));
  write(3);
  EXPECT_FALSE(fs::is_symlink(checkpoint_path(folder_, 3)));
  EXPECT_TRUE(verify_checkpoint(checkpoint_path(folder_, 3), Verify::full).complete());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(Checkpoints, NothingElseIsPublished) {
  StagedFolder staged(folder_ / "model");
  write_file_atomically(staged.path() / "file.txt", "mine");
  fs::rename(staged.path(), folder_ / "away");
  fs::create_directories(staged.path());
  EXPECT_THROW(staged.publish(), Error) << "another folder has its name now";
  EXPECT_FALSE(fs::exists(folder_ / "model"));
}

TEST_F(Checkpoints, ATextInPiecesIsOneFile) {
  const auto piece = [](const char* text) { return std::make_shared<const std::string>(text); };
  const auto written = text_file_writer("t.json", {piece("{"), piece(""), piece("}\n")})(folder_);
  EXPECT_EQ(read_file(folder_ / "t.json"), "{}\n");
  EXPECT_EQ(written.at("t.json"), file_checksum(folder_ / "t.json"));
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
