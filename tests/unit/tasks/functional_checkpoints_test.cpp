#include <gradus/core/files.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "../error_of.h"
#include "tasks/functional_checkpoints.h"

namespace gradus::tasks {
namespace {

namespace fs = std::filesystem;

class FunctionalCheckpoints : public ::testing::Test {
 protected:
  FunctionalCheckpoints() { make_directory(folder_); }
  ~FunctionalCheckpoints() override { fs::remove_all(folder_); }
  void make(std::initializer_list<const char*> names) const {
    for (const auto* name : names) make_directory(folder_ / name);
  }
  std::string resumed(const std::string& asked, bool overwrites = false) const {
    TrainingArguments args;
    args.output_dir = folder_.string();
    if (!asked.empty()) args.resume_from_checkpoint = asked;
    args.overwrite_output_dir = overwrites;
    const auto found = checkpoint_to_resume(args, "run");
    return found ? found->filename().string() : "new";
  }

  fs::path folder_ =
      fs::temp_directory_path() / ("gradus_functional_checkpoints_" + std::to_string(::getpid()));
};

TEST_F(FunctionalCheckpoints, AreSortedByEpochAndStep) {
  make({"run-e0-s10", "run-e0-s9", "run-e2-s1", "run-e10-s1", "run-e1-s0", "running-e9-s9",
        "run-e-s1", "run-e1-s", "run-e1", "run-e1-s1x", "run-e+1-s1", "checkpoint-5"});
  write_file_atomically(folder_ / "run-e99-s1", "a file");
  std::vector<std::string> names;
  for (const auto& each : list_functional_checkpoints(folder_, "run"))
    names.push_back(each.path.filename().string());
  EXPECT_EQ(names, (std::vector<std::string>{"run-e0-s9", "run-e0-s10", "run-e1-s0", "run-e2-s1",
                                             "run-e10-s1"}));
  EXPECT_TRUE(list_functional_checkpoints(folder_ / "none", "run").empty());
}

TEST_F(FunctionalCheckpoints, OneIsChosenAsTheTrainerChoosesIts) {
  EXPECT_EQ(resumed(""), "new");
  EXPECT_EQ(resumed("last"), "new");
  EXPECT_EQ(message_of("G-CKPT-1", [&] { resumed("true"); }),
            "no valid checkpoint found in output directory (" + folder_.string() + ")");
  make({"run-e0-s4", "run-e1-s2"});
  EXPECT_EQ(resumed("last"), "run-e1-s2");
  EXPECT_EQ(resumed("true"), "run-e1-s2");
  EXPECT_EQ(resumed((folder_ / "run-e0-s4").string()), "run-e0-s4");
  EXPECT_EQ(resumed("", /*overwrites=*/true), "new");
  EXPECT_EQ(message_of("G-TASK-2", [&] { resumed(""); }),
            folder_.string() + " already holds checkpoints (the newest is run-e1-s2)");
  EXPECT_EQ(message_of("G-CKPT-1", [&] { resumed((folder_ / "gone").string()); }),
            "can't find a valid checkpoint at " + (folder_ / "gone").string() +
                ": there is no such folder");
}

}  // namespace
}  // namespace gradus::tasks
