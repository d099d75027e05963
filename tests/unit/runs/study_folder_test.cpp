#include "runs/study_folder.h"

#include <gradus/search/study.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace gradus::runs {
namespace {

namespace fs = std::filesystem;

TEST(StudyFolder, FindsStudiesAndNoticesChanges) {
  const auto root =
      fs::temp_directory_path() / ("gradus-study-folder-" + std::to_string(::getpid()));
  fs::remove_all(root);
  fs::create_directories(root / "a" / "run-0");
  fs::create_directories(root / "checkpoint-5");
  StudyFolder folder(root);
  EXPECT_FALSE(folder.look());
  EXPECT_TRUE(folder.studies().empty());

  search::Study study({.storage = root / "a" / "study.db", .study_name = "sweep"});
  study.set_user_attr("gradus:sweep", {{"metric", "eval_loss"}, {"output_dir", "/moved/away"}});
  search::Study({.storage = root / "checkpoint-5" / "study.db"});
  fs::create_symlink(root / "a" / "study.db", root / "link.db");
  std::ofstream(root / "broken.db") << "no database at all, whatever its name may say about it";
  EXPECT_TRUE(folder.look());
  ASSERT_EQ(folder.studies().size(), 1u);
  const auto found = folder.studies()[0];
  EXPECT_EQ(found.file, root / "a" / "study.db");
  EXPECT_EQ(found.metric(), "eval_loss");
  EXPECT_EQ(found.runs_folder(), root / "a");
  EXPECT_TRUE(found.study.trials.empty());
  EXPECT_FALSE(folder.look()) << "nothing has changed";

  study.ask();
  EXPECT_TRUE(folder.look());
  EXPECT_EQ(folder.studies()[0].study.trials.size(), 1u);
  fs::remove(root / "a" / "study.db");
  EXPECT_TRUE(folder.look());
  EXPECT_TRUE(folder.studies().empty());
  fs::remove_all(root);
}

}  // namespace
}  // namespace gradus::runs
