// Distributions, samplers, pruners and studies.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/search/space.h>
#include <gradus/search/study.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <set>

#include "search/truncated_normal.h"
#include "trackers/sqlite_database.h"

namespace gradus::search {
namespace {

using nlohmann::json;

template <class F>
std::string id_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.id();
  }
  return "no error";
}

TEST(TruncatedNormal, QuantilesUndoTheDistribution) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {-1, 1}, {-30, -25}, {25, 30}, {-3, 40}, {0, 1e-3}, {5, 9}}) {
    const double mass = log_normal_mass(low, high);
    for (const double q : {1e-9, 0.1, 0.5, 0.9, 1 - 1e-9}) {
      const double x = truncated_quantile(q, low, high);
      EXPECT_GE(x, low);
      EXPECT_LE(x, high);
      EXPECT_NEAR(std::exp(log_normal_mass(low, x) - mass), q, 1e-7) << low << " " << high;
    }
  }
  EXPECT_NEAR(log_normal_cdf(-40), -804.6084420137538, 1e-9);
  EXPECT_NEAR(log_normal_cdf(0), std::log(0.5), 1e-15);
}

TEST(Distribution, IsWrittenAsOptunaWritesIt) {
  EXPECT_EQ(Distribution::real(0, 1, false, 0.25).to_json(),
            R"({"attributes": {"high": 1.0, "log": false, "low": 0.0, "step": 0.25}, )"
            R"("name": "FloatDistribution"})");
  for (const auto& each :
       {Distribution::real(1e-6, 1e-4, true), Distribution::integer(1, 9, false, 2),
        Distribution::categorical({"a", 1, 2.5, true, nullptr})})
    EXPECT_EQ(Distribution::from_json(each.to_json()), each);
  EXPECT_EQ(Distribution::integer(1, 10, false, 4).high(), 9);
  EXPECT_EQ(Distribution::integer(-9000000000000000000, 9000000000000000000, false, 3).high(),
            9e18);
  EXPECT_EQ(Distribution::real(0, 0.3, false, 0.1).all_values()->size(), 4u);
  EXPECT_FALSE(Distribution::real(0, 1).all_values());
}

// 3 * 0.1 is more than 0.3; Optuna refuses a trial with that value.
TEST(Distribution, AllValuesLieWithinTheBounds) {
  for (const auto& [high, step] :
       std::vector<std::pair<double, double>>{{0.3, 0.1}, {0.7, 0.1}, {2.1, 0.7}, {0.25, 0.1}}) {
    const auto of = Distribution::real(0, high, false, step);
    const auto all = of.all_values();
    ASSERT_TRUE(all);
    for (const auto& value : *all) EXPECT_TRUE(of.contains(value.get<double>())) << value;
    EXPECT_EQ(all->back().get<double>(), of.high());
  }
}

TEST(Space, ABoundThatIsNoIntegerOfOursIsNamed) {
  const auto message = [](const json& space) -> std::string {
    try {
      parse_space(space);
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  };
  EXPECT_EQ(message({{"seed", {{"low", 0}, {"high", uint64_t(1) << 63}}}}),
            "the parameter 'seed' of the space has the high 9223372036854775808, which is more "
            "than 9223372036854775807");
  EXPECT_EQ(message({{"seed", {{"low", 0}, {"high", INT64_MAX}}}}), "no error");
}

TEST(Distribution, SaysWhatIsWrong) {
  EXPECT_EQ(id_of([] { Distribution::real(2, 1); }), "G-SEARCH-1");
  EXPECT_EQ(id_of([] { Distribution::integer(0, 4, true); }), "G-SEARCH-1");
  EXPECT_EQ(id_of([] { Distribution::real(1, 2, true, 0.5); }), "G-SEARCH-1");
  EXPECT_EQ(id_of([] { Distribution::categorical({}); }), "G-SEARCH-1");
  EXPECT_EQ(id_of([] { Distribution::from_json("{}"); }), "G-SEARCH-2");
  EXPECT_EQ(id_of([] { parse_direction("up"); }), "G-SEARCH-3");
  EXPECT_EQ(id_of([] { make_sampler("tpi", {}); }), "G-SEARCH-3");
  EXPECT_EQ(id_of([] { make_pruner("hyperband"); }), "G-SEARCH-3");
}

class StudyTest : public ::testing::Test {
 protected:
  std::filesystem::path folder_ = make_folder();
  std::filesystem::path file_ = folder_ / "study.db";
  ~StudyTest() override { std::filesystem::remove_all(folder_); }

  static std::filesystem::path make_folder() {
    auto name = (std::filesystem::temp_directory_path() / "gradus-study-XXXXXX").string();
    return ::mkdtemp(name.data());
  }
  Study open(uint64_t seed = 3) {
    return Study(
        {.storage = file_, .sampler = std::make_shared<TPESampler>(TPEOptions{.seed = seed})});
  }
};

double bowl(Trial& trial) {
  const double x = trial.suggest_float("x", -5, 5);
  const auto y = trial.suggest_int("y", 1, 64, true);
  const auto z = trial.suggest_categorical("z", {"a", "b", nullptr});
  return x * x + std::abs(std::log2(double(y)) - 3) + (z == "b" ? 0 : 1);
}

TEST_F(StudyTest, FindsTheBottomOfABowl) {
  auto study = open();
  study.optimize(bowl, 60);
  const auto best = study.best_trial();
  EXPECT_LT(*best.value, 0.7);
  EXPECT_EQ(best.params()["z"], "b");
  EXPECT_EQ(study.trials().size(), 60u);
}

TEST_F(StudyTest, OpenedAgainItGoesOnAsIfNothingHadHappened) {
  std::vector<json> whole, parts;
  {
    Study study({.sampler = std::make_shared<TPESampler>(TPEOptions{.seed = 3})});
    study.optimize(bowl, 25);
    for (const auto& trial : study.trials()) whole.push_back(trial.params());
  }
  for (const int64_t until : {4, 9, 13, 25}) open().optimize(bowl, until);
  for (const auto& trial : open().trials()) parts.push_back(trial.params());
  EXPECT_EQ(whole, parts);
}

TEST_F(StudyTest, TakesUpWhatAKilledProcessHasLeft) {
  const pid_t child = ::fork();
  if (child == 0) {
    Study study({.storage = file_, .sampler = std::make_shared<RandomSampler>(5)});
    auto trial = study.ask();
    trial.suggest_float("x", 0, 1);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  Study study({.storage = file_, .sampler = std::make_shared<RandomSampler>(5)});
  const double left = study.trials().at(0).numbers.at("x");
  auto again = study.ask();
  EXPECT_EQ(again.number(), 0);
  EXPECT_EQ(again.suggest_float("x", 0, 1), left);
  study.tell(again, 1.0);
  EXPECT_NE(study.ask().suggest_float("x", 0, 1), left);
}

// As `study.enqueue_trial({"x": 0.25})` of Optuna leaves it.
void put_into_queue(const std::filesystem::path& file, const std::string& parameters) {
  SqliteDatabase database(file);
  database.run(
      "INSERT INTO trials (number, study_id, state) SELECT COALESCE(MAX(number), -1) + 1, 1, "
      "'WAITING' FROM trials");
  database.run(
      "INSERT INTO trial_system_attributes (trial_id, key, value_json) SELECT MAX(trial_id), "
      "'fixed_params', ? FROM trials",
      {parameters});
}

TEST_F(StudyTest, BeginsWhatOptunaHasPutIntoTheQueue) {
  auto study = open();
  study.tell(study.ask(), 1.0);
  put_into_queue(file_, R"({"x": 0.25})");
  put_into_queue(file_, R"({"x": 7})");
  study.optimize(
      [](Trial& trial) {
        return trial.suggest_float("x", 0, 1) + double(trial.suggest_int("y", 3, 9));
      },
      4);
  const auto trials = study.trials();
  ASSERT_EQ(trials.size(), 4u);
  for (const auto& trial : trials) EXPECT_EQ(trial.state, TrialState::complete) << trial.number;
  EXPECT_EQ(trials[1].numbers.at("x"), 0.25);
  EXPECT_EQ(trials[2].numbers.at("x"), 7);
  EXPECT_GE(trials[1].numbers.at("y"), 3);
  EXPECT_LE(trials[3].numbers.at("x"), 1);
}

TEST_F(StudyTest, AQueuedTrialTakesNoCellOfAGrid) {
  const GridSampler::Grid grid = {{"a", {1, 2, 3}}};
  Study study({.storage = file_, .sampler = std::make_shared<GridSampler>(grid, 7)});
  put_into_queue(file_, R"({"a": 9})");
  study.optimize([](Trial& trial) { return double(trial.suggest_int("a", 1, 9)); }, 100);
  std::multiset<double> seen;
  for (const auto& trial : study.trials()) seen.insert(trial.numbers.at("a"));
  EXPECT_EQ(seen, (std::multiset<double>{1, 2, 3, 9}));
}

TEST_F(StudyTest, LeavesTheTrialsOfALivingProcessAlone) {
  Study study({.storage = file_});
  const auto first = study.ask();
  EXPECT_EQ(study.ask().number(), first.number() + 1);
}

TEST_F(StudyTest, KeepsNumbersThatSqlHasNot) {
  auto study = open();
  auto trial = study.ask();
  trial.report(std::nan(""), 1);
  trial.report(HUGE_VAL, 2);
  trial.report(0.5, 2);
  study.tell(trial, -HUGE_VAL);
  const auto found = open().trials().at(0);
  EXPECT_TRUE(std::isnan(found.intermediate_values.at(1)));
  EXPECT_EQ(found.intermediate_values.at(2), 0.5);
  EXPECT_EQ(found.value, -HUGE_VAL);
  auto bad = study.ask();
  study.tell(bad, std::nan(""));
  EXPECT_EQ(study.trials().at(1).state, TrialState::fail);
}

TEST_F(StudyTest, RefusesAnotherDirectionAndAnEmptyStudy) {
  const auto study = open();
  EXPECT_EQ(id_of([&] { Study({.storage = file_, .direction = "maximize"}); }), "G-SEARCH-4");
  EXPECT_EQ(id_of([&] { study.best_trial(); }), "G-SEARCH-5");
}

TEST_F(StudyTest, AGridIsTriedOnceAndThenNothing) {
  const GridSampler::Grid grid = {{"a", {1, 2, 3}}, {"b", {"x", "y"}}};
  Study study({.storage = file_, .sampler = std::make_shared<GridSampler>(grid, 7)});
  study.optimize(
      [](Trial& trial) {
        return double(trial.suggest_categorical("a", {1, 2, 3}).get<int>()) +
               (trial.suggest_categorical("b", {"x", "y"}) == "x" ? 10 : 0);
      },
      100);
  std::set<std::string> seen;
  for (const auto& trial : study.trials()) seen.insert(trial.params().dump());
  EXPECT_EQ(study.trials().size(), 6u);
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(*study.best_trial().value, 1);
}

TEST_F(StudyTest, AnExceptionFailsTheTrialAndIsPassedOn) {
  auto study = open();
  EXPECT_THROW(study.optimize([](Trial&) -> double { throw std::runtime_error("no"); }, 3),
               std::runtime_error);
  EXPECT_EQ(study.trials().at(0).state, TrialState::fail);
}

TEST_F(StudyTest, HalvingStopsWhatIsWorseAtARung) {
  Study study({.storage = file_,
               .sampler = std::make_shared<RandomSampler>(1),
               .pruner = std::make_shared<SuccessiveHalvingPruner>(
                   HalvingOptions{.min_resource = 2, .reduction_factor = 2})});
  const std::vector<double> levels = {1.0, 2.0, 0.5, 3.0};
  study.optimize(
      [&](Trial& trial) {
        for (int64_t step = 1; step <= 4; ++step) {
          trial.report(levels[size_t(trial.number())], step);
          if (trial.should_prune()) throw TrialPruned();
        }
        return levels[size_t(trial.number())];
      },
      4);
  std::vector<TrialState> states;
  for (const auto& trial : study.trials()) states.push_back(trial.state);
  EXPECT_EQ(states, (std::vector{TrialState::complete, TrialState::pruned, TrialState::complete,
                                 TrialState::pruned}));
  EXPECT_EQ(study.trials().at(1).value, 2.0);  // its last report
  EXPECT_EQ(study.trials().at(1).last_step(), 2);
}

TEST_F(StudyTest, TheMedianStopsWhatIsWorseThanHalf) {
  Study study({.storage = file_, .pruner = std::make_shared<MedianPruner>(2)});
  const std::vector<double> levels = {1.0, 2.0, 1.4, 1.6};
  study.optimize(
      [&](Trial& trial) {
        trial.report(levels[size_t(trial.number())], 1);
        if (trial.should_prune()) throw TrialPruned();
        return levels[size_t(trial.number())];
      },
      4);
  EXPECT_EQ(study.trials().at(2).state, TrialState::complete);
  EXPECT_EQ(study.trials().at(3).state, TrialState::pruned);
}

}  // namespace
}  // namespace gradus::search
