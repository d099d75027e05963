#include "case_runner.h"

#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <gtest/gtest.h>

#include <cstdlib>

namespace gradus::data_test {
namespace {

nlohmann::json cases_of(const std::string& kind) {
  static const auto all = read_json(GRADUS_SOURCE_DIR "/tests/parity/data/cases.json");
  auto result = nlohmann::json::array();
  for (const auto& test : all) {
    if (test.at("kind") == kind) result.push_back(test);
  }
  return result;
}

class PeerCases : public testing::TestWithParam<const char*> {};

TEST_P(PeerCases, HaveThePeersAnswer) {
  const auto cases = cases_of(GetParam());
  ASSERT_FALSE(cases.empty());
  for (auto test : cases) {
    const auto expected = test.at("expected");
    test.erase("expected");
    EXPECT_EQ(run_case(test).dump(), expected.dump()) << test.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Data, PeerCases,
                         testing::Values("order", "grouped", "rebalance", "repeat", "shard",
                                         "iterable_shard", "shuffle", "split", "interleave", "pack",
                                         "collate"),
                         [](const auto& parameter) { return std::string(parameter.param); });

/// For tests/differential/data_order_test.py: answers the cases of one file into another.
TEST(PeerCases, AreAnsweredForTheDifferentialTest) {
  const char* questions = std::getenv("GRADUS_DATA_CASES");
  const char* answers = std::getenv("GRADUS_DATA_ANSWERS");
  if (questions == nullptr || answers == nullptr)
    GTEST_SKIP() << "only run by tests/differential/data_order_test.py";
  auto result = nlohmann::json::array();
  for (const auto& test : read_json(questions)) result.push_back(run_case(test));
  write_file_atomically(answers, result.dump());
}

}  // namespace
}  // namespace gradus::data_test
