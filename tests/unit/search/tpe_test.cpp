// Our TPE against Optuna's: tests/parity/search/tpe.json, made by make_tpe.py beside it.
#include <gradus/core/json.h>
#include <gradus/search/study.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace gradus::search {
namespace {

using nlohmann::json;
using Space = std::map<std::string, Distribution>;
using Values = std::map<std::string, double>;

struct TestFunction {
  std::vector<std::pair<std::string, Distribution>> space;  // in the order of Python's calls
  std::function<double(const Values&)> value;
};

double branin_at(double x, double y) {
  const double inner = y - 5.1 / (4 * M_PI * M_PI) * x * x + 5 / M_PI * x - 6;
  return inner * inner + 10 * (1 - 1 / (8 * M_PI)) * std::cos(x) + 10;
}

double ackley_at(double x, double y) {
  return -20 * std::exp(-0.2 * std::sqrt((x * x + y * y) / 2)) -
         std::exp((std::cos(2 * M_PI * x) + std::cos(2 * M_PI * y)) / 2) + 20 + M_E;
}

double tuning_at(const Values& v) {
  return 1 + std::pow(std::log10(v.at("learning_rate")) + 3.5, 2) +
         0.1 * std::abs(std::log2(v.at("batch")) - 5) + 4 * std::abs(v.at("weight_decay") - 0.1) +
         0.2 * std::abs(std::log2(v.at("width")) - 8) + 0.05 * std::pow(v.at("depth") - 5, 2);
}

const std::map<std::string, TestFunction>& functions() {
  const auto real = [](double low, double high) { return Distribution::real(low, high); };
  static const std::map<std::string, TestFunction> all = {
      {"sphere",
       {{{"x0", real(-5, 5)}, {"x1", real(-5, 5)}, {"x2", real(-5, 5)}},
        [](const Values& v) {
          double sum = 0;
          for (const auto& [name, x] : v) sum += x * x;
          return sum;
        }}},
      {"branin",
       {{{"x", real(-5, 10)}, {"y", real(0, 15)}},
        [](const Values& v) { return branin_at(v.at("x"), v.at("y")); }}},
      {"rosenbrock",
       {{{"x", real(-2, 2)}, {"y", real(-1, 3)}},
        [](const Values& v) {
          const double x = v.at("x"), y = v.at("y");
          return (1 - x) * (1 - x) + 100 * (y - x * x) * (y - x * x);
        }}},
      {"ackley",
       {{{"x", real(-32, 32)}, {"y", real(-32, 32)}},
        [](const Values& v) { return ackley_at(v.at("x"), v.at("y")); }}},
      {"tuning",
       {{{"learning_rate", Distribution::real(1e-6, 1e-2, true)},
         {"batch", Distribution::categorical({8, 16, 32, 64})},
         {"weight_decay", Distribution::real(0, 0.3, false, 0.05)},
         {"width", Distribution::integer(16, 1024, true)},
         {"depth", Distribution::integer(1, 9, false, 2)}},
        tuning_at}},
  };
  return all;
}

const json& fixture() {
  static const auto read =
      read_json(std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/parity/search/tpe.json");
  return read;
}

Study study_of(uint64_t seed) {
  return Study({.sampler = std::make_shared<TPESampler>(TPEOptions{.seed = seed})});
}

Values suggest_all(Trial& trial, const TestFunction& function) {
  Values values;
  for (const auto& [name, distribution] : function.space)
    values[name] = trial.suggest(name, distribution).get<double>();
  return values;
}

class TpeAgainstOptuna : public ::testing::TestWithParam<std::string> {};

// The same seed and the same results lead to the same suggestions, trial by trial.
TEST_P(TpeAgainstOptuna, SuggestsTheSame) {
  const auto& function = functions().at(GetParam());
  const auto& expected = fixture()["functions"][GetParam()];
  auto study = study_of(expected["seed"]);
  for (const auto& row : expected["history"]) {
    auto trial = study.ask();
    size_t at = 0;
    for (const auto& [name, value] : suggest_all(trial, function)) {
      const double wanted = row[at++];
      ASSERT_NEAR(value, wanted, 1e-9 * std::max(1e-3, std::abs(wanted)))
          << name << " of trial " << trial.number();
    }
    const double result = row.back();
    EXPECT_NEAR(function.value(suggest_all(trial, function)), result, 1e-7 * std::max(1.0, result));
    study.tell(trial, result);
  }
}

// The median of the best values over 20 seeds is within a tenth of Optuna's.
TEST_P(TpeAgainstOptuna, FindsAsMuch) {
  const auto& function = functions().at(GetParam());
  const auto& expected = fixture()["functions"][GetParam()];
  std::vector<double> best;
  for (uint64_t seed = 0; seed < expected["best"].size(); ++seed) {
    auto study = study_of(seed);
    study.optimize([&](Trial& trial) { return function.value(suggest_all(trial, function)); }, 60);
    best.push_back(*study.best_trial().value);
  }
  std::sort(best.begin(), best.end());
  const double median = (best[9] + best[10]) / 2;
  RecordProperty("median", std::to_string(median));
  EXPECT_LE(median, 1.1 * expected["median"].get<double>());
  EXPECT_GE(median, 0.9 * expected["median"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Functions, TpeAgainstOptuna,
                         ::testing::Values("sphere", "branin", "rosenbrock", "ackley", "tuning"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace gradus::search
