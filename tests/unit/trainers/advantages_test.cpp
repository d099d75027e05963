#include "trainers/advantages.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainers/nan_statistics.h"

namespace gradus {
namespace {

using torch::Tensor;

const double kNan = std::nan("");

void expect_near(const Tensor& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.numel(), int64_t(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[int64_t(i)].item<double>(), expected[i], 1e-5) << i;
}

TEST(Advantages, OfAGroupAreDistancesFromItsMean) {
  const auto rewards = torch::tensor({0.0, 1.0, 5.0, 5.0}).unsqueeze(1);
  const auto plain =
      group_advantages(rewards, {1.0}, {.num_generations = 2, .scale_rewards = "none"});
  expect_near(plain.values, {-0.5, 0.5, 0, 0});
  EXPECT_TRUE(torch::equal(plain.is_deviation_zero, torch::tensor({false, false, true, true})));
  const auto deviation = std::sqrt(0.5) + 1e-4;
  expect_near(group_advantages(rewards, {1.0}, {.num_generations = 2}).values,
              {-0.5 / deviation, 0.5 / deviation, 0, 0});
}

TEST(Advantages, CompletionsWithoutRewardDoNotCount) {
  const auto rewards = torch::tensor({0.0, 1.0, kNan, 4.0}).unsqueeze(1);
  expect_near(
      group_advantages(rewards, {2.0}, {.num_generations = 2, .scale_rewards = "none"}).values,
      {-1, 1, 0, 0});
  const auto two = torch::tensor({{1.0, kNan}, {kNan, 2.0}});
  expect_near(weighted_rewards(two, {1.0, 3.0}), {1, 6});
}

TEST(Advantages, LeaveOneOutComparesWithTheOthers) {
  expect_near(leave_one_out_advantages(torch::tensor({1.0, 2.0, 6.0}), 3, false).values,
              {-3, -1.5, 4.5});
  expect_near(leave_one_out_advantages(torch::tensor({1.0, 2.0, kNan}), 3, false).values,
              {-1, 1, 0});
}

TEST(NanStatistics, LeaveOutNan) {
  EXPECT_NEAR(nan_deviation(torch::tensor({1.0, kNan, 3.0})).item<double>(), std::sqrt(2), 1e-6);
  EXPECT_TRUE(std::isnan(nan_deviation(torch::tensor({1.0, kNan})).item<double>()));
  EXPECT_EQ(nan_min(torch::tensor({kNan, 2.0, 1.0})).item<double>(), 1);
  EXPECT_EQ(nan_max(torch::tensor({kNan, 2.0, 1.0})).item<double>(), 2);
  EXPECT_TRUE(std::isnan(nan_max(torch::tensor({kNan})).item<double>()));
}

}  // namespace
}  // namespace gradus
