#include "engine/device_schedule.h"

#include <gradus/optim/adamw.h>
#include <gtest/gtest.h>

#include <limits>

namespace gradus {
namespace {

TEST(DeviceSchedule, SkippedStepsHoldItBack) {
  const auto weight = torch::zeros({1}, torch::requires_grad());
  AdamW optimizer(std::vector<torch::Tensor>{weight}, {.lr = 1.0});
  LambdaLR scheduler(optimizer, [](int64_t step) { return double(step) / 10; });
  const auto schedule = DeviceSchedule::leading(scheduler, 10, torch::kCPU);
  ASSERT_NE(schedule, nullptr);
  const auto fine = torch::zeros({}), skipped = torch::ones({});
  for (const auto& found : {fine, fine, skipped, fine}) {
    schedule->rates();
    schedule->step(found);
  }
  EXPECT_FLOAT_EQ(schedule->rates()[0].item<float>(), 0.3F);
  EXPECT_FLOAT_EQ(float(schedule->settle()), 0.2F);  // of the last step
  EXPECT_DOUBLE_EQ(scheduler.last_lr()[0], 0.3);
  EXPECT_EQ(scheduler.steps_done(), 3);
  ReduceLROnPlateau by_metric(optimizer);
  EXPECT_EQ(DeviceSchedule::leading(by_metric, 10, torch::kCPU), nullptr);
  EXPECT_EQ(DeviceSchedule::leading(scheduler, std::numeric_limits<int64_t>::max(), torch::kCPU),
            nullptr)
      << "no table is that long";
  EXPECT_NE(DeviceSchedule::following(scheduler, optimizer.param_groups(),
                                      std::numeric_limits<int64_t>::max(), torch::kCPU),
            nullptr);
}

TEST(DeviceSchedule, WhereTheHostLeadsTheTableFollows) {
  const auto one = torch::zeros({1}, torch::requires_grad()),
             two = torch::zeros({1}, torch::requires_grad());
  AdamW optimizer(std::vector<ParamGroupInit>{{.params = {one}}, {.params = {two}, .lr = 0.5}},
                  {.lr = 1.0});
  LambdaLR scheduler(optimizer, [](int64_t step) { return 1.0 / double(1 + step); });
  auto& groups = optimizer.param_groups();
  const auto schedule = DeviceSchedule::following(scheduler, groups, /*max_steps=*/4, torch::kCPU);
  for (int64_t step = 0; step < 12;
       ++step) {  // longer than was planned: the table is used again from its start
    if (step == 2) groups[1].lr = 0.125;  // a callback may do so
    schedule->follow(groups);
    const auto rates = schedule->rates();
    ASSERT_EQ(rates[0].item<float>(), float(groups[0].lr)) << step;
    ASSERT_EQ(rates[1].item<float>(), float(groups[1].lr)) << step;
    schedule->step(std::nullopt);
    scheduler.step();
  }
  EXPECT_FALSE(schedule->leads());
  ReduceLROnPlateau by_metric(optimizer);
  const auto any = DeviceSchedule::following(by_metric, groups, 4, torch::kCPU);
  any->follow(groups);
  EXPECT_EQ(any->rates()[0].item<float>(), float(groups[0].lr));
}

}  // namespace
}  // namespace gradus
