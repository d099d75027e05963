// Studies as those see them who only look.
#include "search/recorded_study.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/search/study.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "trackers/sqlite_database.h"

namespace gradus::search {
namespace {

namespace fs = std::filesystem;

class RecordedStudies : public ::testing::Test {
 protected:
  RecordedStudies()
      : folder_(fs::temp_directory_path() /
                ("gradus-recorded-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RecordedStudies() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(RecordedStudies, AreWhatTheStudyHolds) {
  const auto file = folder_ / "study.db";
  Study study({.storage = file, .study_name = "mine", .direction = "maximize"});
  study.set_user_attr("about", {{"metric", "accuracy"}});
  for (const double value : {1.0, 3.0, 2.0}) {
    auto trial = study.ask();
    trial.suggest_float("rate", 1e-5, 1, /*log=*/true);
    trial.suggest_categorical("kind", {"a", nullptr, 3});
    trial.report(value / 2, 10);
    trial.report(value, 20);
    study.tell(trial, value);
  }
  auto pruned = study.ask();
  pruned.report(9, 10);
  study.tell(pruned, TrialState::pruned);
  study.tell(study.ask(), NAN);
  auto running = study.ask();
  running.suggest_int("n", 1, 5);
  running.report(-INFINITY, 10);

  const auto found = read_studies(file);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "mine");
  EXPECT_EQ(found[0].direction, Direction::maximize);
  EXPECT_EQ(found[0].user_attrs["about"]["metric"], "accuracy");
  const auto expected = study.trials();
  ASSERT_EQ(found[0].trials.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& trial = found[0].trials[i];
    EXPECT_EQ(trial.id, expected[i].id);
    EXPECT_EQ(trial.number, expected[i].number);
    EXPECT_EQ(trial.state, expected[i].state);
    EXPECT_EQ(trial.value, expected[i].value);
    EXPECT_EQ(trial.params(), expected[i].params());
    EXPECT_EQ(trial.intermediate_values, expected[i].intermediate_values);
    EXPECT_EQ(trial.system_attrs, expected[i].system_attrs);
  }
  EXPECT_EQ(found[0].best(), 1u);
  EXPECT_EQ(found[0].best_so_far(), (std::vector<double>{1, 3, 3, 3, 3, 3}));
  EXPECT_TRUE(is_under_way(found[0].trials[5]));
  EXPECT_FALSE(is_under_way(found[0].trials[0]));
}

TEST_F(RecordedStudies, HaveNoBestBeforeATrialIsComplete) {
  RecordedStudy study{.name = "new"};
  EXPECT_FALSE(study.best());
  study.trials.push_back({.state = TrialState::pruned, .value = 1.0});
  study.trials.push_back({.state = TrialState::complete, .value = 2.0});
  EXPECT_EQ(study.best(), 1u);
  const auto best = study.best_so_far();
  EXPECT_TRUE(std::isnan(best[0]));
  EXPECT_EQ(best[1], 2);
}

TEST_F(RecordedStudies, OtherFilesHaveNoneAndStayAsTheyAre) {
  const auto database = folder_ / "other.db", text = folder_ / "text.db";
  std::ofstream(text) << "this is no database, but it is longer than the header of one is";
  EXPECT_THROW(read_studies(text), Error);
  EXPECT_THROW(read_studies(folder_ / "missing.db"), Error);
  EXPECT_FALSE(fs::exists(folder_ / "missing.db"));
  std::ofstream(database).close();
  EXPECT_TRUE(read_studies(database).empty());
  EXPECT_EQ(fs::file_size(database), 0u);
}

TEST_F(RecordedStudies, RunNoProgramOfAFile) {
  const auto file = folder_ / "study.db";
  Study study({.storage = file});
  study.tell(study.ask(), 1);
  {
    SqliteDatabase database(file);  // a view that never ends in the place of a table
    database.run("DROP TABLE trial_intermediate_values");
    database.run(
        "CREATE VIEW trial_intermediate_values AS WITH RECURSIVE n(trial_id) AS (SELECT 1 UNION "
        "ALL SELECT 1 FROM n) SELECT trial_id, 1 AS step, 1.0 AS intermediate_value, 'FINITE' AS "
        "intermediate_value_type FROM n");
  }
  EXPECT_THROW(read_studies(file), Error);
}

TEST_F(RecordedStudies, AreOpenedForTrialsWithoutTheirPrograms) {
  const auto file = folder_ / "study.db";
  {
    Study study({.storage = file});
    study.tell(study.ask(), 1);
    SqliteDatabase database(file);
    database.run(
        "CREATE TRIGGER endless AFTER INSERT ON trials BEGIN INSERT INTO trial_user_attributes "
        "(trial_id, \"key\", value_json) WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 "
        "FROM n) SELECT 1, x, '1' FROM n; END");
  }
  Study study({.storage = file});
  study.tell(study.ask(), 2);
  EXPECT_EQ(study.trials().size(), 2u);
}

TEST_F(RecordedStudies, AreRefusedWithWhatCannotBe) {
  int number = 0;
  for (const char* damage :
       {"UPDATE trial_params SET param_value = 99", "UPDATE trial_params SET param_value = NULL",
        "UPDATE trial_params SET param_value = -1",
        "UPDATE trial_params SET distribution_json = NULL", "UPDATE trials SET number = 'x'",
        "UPDATE trials SET state = x'00'"}) {
    const auto file = folder_ / (std::to_string(number++) + ".db");
    {
      Study study({.storage = file});
      auto trial = study.ask();
      trial.suggest_categorical("kind", {"a", "b"});
      study.tell(trial, 1);
      SqliteDatabase(file).run(damage);
    }
    const auto id_of_error = [](auto&& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        return error.id();
      }
      return "no error";
    };
    EXPECT_EQ(id_of_error([&] { read_studies(file); }), "G-SEARCH-2") << damage;
    EXPECT_EQ(id_of_error([&] { Study({.storage = file}).trials(); }), "G-SEARCH-2") << damage;
  }
}

TEST_F(RecordedStudies, KnowNoOwnerOfAnotherKind) {
  FrozenTrial trial{.state = TrialState::running};
  trial.system_attrs["gradus:process"] =
      parse_json(R"({"host": 5, "boot": null, "pid": "x", "start": []})");
  EXPECT_TRUE(is_under_way(trial)) << "nobody knows that it has ended";
}

TEST_F(RecordedStudies, WaitForNoFifo) {
  const auto file = folder_ / "study.db";
  {
    Study study({.storage = file});
  }
  ASSERT_EQ(::mkfifo((file.string() + "-journal").c_str(), 0600), 0);
  EXPECT_THROW(read_studies(file), Error);
  EXPECT_THROW(Study({.storage = file}), Error);
}

TEST_F(RecordedStudies, AreReadWhileAnotherWrites) {
  const auto file = folder_ / "study.db";
  Study study({.storage = file});
  for (int i = 0; i < 5; ++i) {
    auto trial = study.ask();
    trial.suggest_float("x", 0, 1);
    EXPECT_EQ(read_studies(file).at(0).trials.size(), size_t(i + 1));
    study.tell(trial, i);
  }
}

}  // namespace
}  // namespace gradus::search
