#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/schedulers.h>
#include <gradus/optim/sgd.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "../error_of.h"

namespace gradus {
namespace {

using nlohmann::json;

SGD sgd_with(double lr) {
  return SGD(std::vector<torch::Tensor>{torch::zeros({2}).requires_grad_()}, SGDOptions{.lr = lr});
}

std::vector<double> unroll(LRScheduler& scheduler, int64_t steps) {
  std::vector<double> rates;
  for (int64_t i = 0; i < steps; ++i) {
    rates.push_back(scheduler.last_lr().at(0));
    scheduler.step();
  }
  return rates;
}

TEST(Schedulers, GoldenFilesWithinOneBillionth) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GRADUS_SOURCE_DIR "/tests/golden")) {
    if (!entry.path().filename().string().starts_with("sched_")) continue;
    ++files;
    const auto golden = read_json(entry.path());
    auto optimizer = sgd_with(golden["base_lr"]);
    auto scheduler = get_scheduler(golden["name"], optimizer, golden["warmup"], golden["steps"],
                                   golden["kwargs"]);
    for (const auto& expected : golden["lr"]) {
      EXPECT_NEAR(optimizer.param_groups()[0].lr, expected.get<double>(), 1e-9) << golden["name"];
      scheduler->step();
    }
  }
  EXPECT_EQ(files, 10);
}

struct Expected {
  const char* name;
  json kwargs;
  int64_t warmup;
  std::vector<double> rates;
};

std::vector<Expected> peer_table() {
  return {
      {"constant", {}, 2, std::vector<double>(10, 10.0)},
      {"constant_with_warmup", {}, 4, {0, 2.5, 5, 7.5, 10, 10, 10, 10, 10, 10}},
      {"linear", {}, 2, {0, 5, 10, 8.75, 7.5, 6.25, 5, 3.75, 2.5, 1.25}},
      {"cosine", {}, 2, {0, 5, 10, 9.61, 8.53, 6.91, 5, 3.08, 1.46, 0.38}},
      {"cosine_with_restarts",
       {{"num_cycles", 2}},
       2,
       {0, 5, 10, 8.53, 5, 1.46, 10, 8.53, 5, 1.46}},
      {"polynomial",
       {{"power", 2.0}, {"lr_end", 1e-7}},
       2,
       {0, 5, 10, 7.656, 5.625, 3.906, 2.5, 1.406, 0.625, 0.156}},
      {"inverse_sqrt", {}, 2, {0, 5, 10, 8.165, 7.071, 6.325, 5.774, 5.345, 5, 4.714}},
      {"warmup_stable_decay", {{"num_decay_steps", 2}}, 2, {0, 5, 10, 10, 10, 10, 10, 10, 10, 5}},
  };
}

TEST(Schedulers, Peer151_ListsOfThePeersTests) {
  for (const auto& row : peer_table()) {
    auto optimizer = sgd_with(10.0);
    auto scheduler = get_scheduler(row.name, optimizer, row.warmup, 10, row.kwargs);
    const auto rates = unroll(*scheduler, 10);
    for (size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(rates[i], row.rates[i], 1e-2) << row.name << " step " << i;
  }
}

TEST(Schedulers, Peer151_SaveAndReloadMidwayGivesTheSameList) {
  for (const auto& row : peer_table()) {
    auto whole_optimizer = sgd_with(10.0), optimizer = sgd_with(10.0);
    const auto whole =
        unroll(*get_scheduler(row.name, whole_optimizer, row.warmup, 10, row.kwargs), 10);
    auto scheduler = get_scheduler(row.name, optimizer, row.warmup, 10, row.kwargs);
    std::vector<double> rates;
    for (int i = 0; i < 10; ++i) {
      if (i == 5) {
        const auto state = scheduler->state_dict();
        scheduler = get_scheduler(row.name, optimizer, row.warmup, 10, row.kwargs);
        scheduler->load_state_dict(state);
      }
      rates.push_back(scheduler->last_lr()[0]);
      scheduler->step();
    }
    EXPECT_EQ(rates, whole) << row.name;
  }
}

TEST(Schedulers, Peer152_WarmupStableDecayShapes) {
  const std::vector<std::pair<const char*, std::vector<double>>> rows = {
      {"linear", {0, 0.25, 0.5, 0.75, 1, 1, 1, 0.75, 0.5, 0.25, 0}},
      {"cosine",
       {0, 0.5 * (1 - std::cos(M_PI / 4)), 0.5, 0.5 * (1 + std::cos(M_PI / 4)), 1, 1, 1,
        0.5 * (1 + std::cos(M_PI / 4)), 0.5, 0.5 * (1 - std::cos(M_PI / 4)), 0}},
      {"1-sqrt",
       {0, 1 - std::sqrt(0.75), 1 - std::sqrt(0.5), 0.5, 1, 1, 1, 0.5, 1 - std::sqrt(0.5),
        1 - std::sqrt(0.75), 0}}};
  for (const auto& [type, expected] : rows) {
    auto optimizer = sgd_with(1.0);
    auto scheduler = get_scheduler("warmup_stable_decay", optimizer, 4, std::nullopt,
                                   {{"num_stable_steps", 2},
                                    {"num_decay_steps", 4},
                                    {"warmup_type", type},
                                    {"decay_type", type}});
    const auto rates = unroll(*scheduler, 11);
    for (size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(rates[i], expected[i], 1e-12) << type << " step " << i;
  }
}

TEST(Schedulers, Peer111_KwargsReachTheSchedule) {
  auto optimizer = sgd_with(0.2);
  auto scheduler =
      get_scheduler("polynomial", optimizer, 0, 100, {{"power", 5.0}, {"lr_end", 1e-5}});
  scheduler->step();
  EXPECT_NEAR(scheduler->last_lr()[0], (0.2 - 1e-5) * std::pow(0.99, 5) + 1e-5, 1e-15);
  for (int i = 0; i < 150; ++i) scheduler->step();
  EXPECT_NEAR(scheduler->last_lr()[0], 1e-5, 1e-18);
}

TEST(Schedulers, EveryGroupKeepsItsOwnBase) {
  std::vector<ParamGroupInit> groups(2);
  groups[0] = {.params = {torch::zeros({1}).requires_grad_()}, .lr = 1.0};
  groups[1] = {.params = {torch::zeros({1}).requires_grad_()}, .lr = 0.1};
  SGD optimizer(std::move(groups), SGDOptions{.lr = 1.0});
  auto scheduler = get_scheduler("linear", optimizer, 0, 4);
  scheduler->step();
  EXPECT_EQ(scheduler->last_lr(), (std::vector<double>{0.75, 0.1 * 0.75}));
  EXPECT_EQ(optimizer.param_groups()[1].initial_lr, 0.1);
}

TEST(Schedulers, LambdaStateHasPythonsKeys) {
  auto optimizer = sgd_with(0.1);
  auto scheduler = get_scheduler("linear", optimizer, 2, 10);
  scheduler->step();
  const auto state = scheduler->state_dict();
  std::vector<std::string> keys;
  for (const auto& [key, value] : state.entries()) keys.push_back(std::get<std::string>(key));
  EXPECT_EQ(keys,
            (std::vector<std::string>{"base_lrs", "last_epoch", "_step_count", "_is_initial",
                                      "_get_lr_called_within_step", "_last_lr", "lr_lambdas"}));
  EXPECT_EQ(state.at("last_epoch").as_int(), 1);
  EXPECT_EQ(state.at("_step_count").as_int(), 2);
  EXPECT_EQ(state.at("_last_lr").items().at(0).as_double(), 0.05);
  EXPECT_TRUE(state.at("lr_lambdas").items().at(0).is_dict());
}

TEST(Schedulers, Peer114_PlateauDropsAfterMoreThanPatienceBadValues) {
  auto optimizer = sgd_with(0.1);
  auto scheduler = get_scheduler("reduce_lr_on_plateau", optimizer, std::nullopt, std::nullopt,
                                 {{"patience", 2}, {"factor", 0.5}});
  EXPECT_TRUE(scheduler->is_metric_driven());
  std::vector<double> rates;
  for (double metric : {1.0, 0.9, 0.9, 0.9, 0.9, 0.8, 0.8}) {
    scheduler->step(metric);
    rates.push_back(optimizer.param_groups()[0].lr);
  }
  EXPECT_EQ(rates, (std::vector<double>{0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05}));
  const auto state = scheduler->state_dict();
  std::vector<std::string> keys;
  for (const auto& [key, value] : state.entries()) keys.push_back(std::get<std::string>(key));
  EXPECT_EQ(keys, (std::vector<std::string>{"factor", "default_min_lr", "min_lrs", "patience",
                                            "cooldown", "eps", "last_epoch", "_last_lr",
                                            "mode_worse", "mode", "threshold", "threshold_mode",
                                            "best", "cooldown_counter", "num_bad_epochs"}));
  ReduceLROnPlateau again(optimizer);
  again.load_state_dict(state);
  again.step(0.8);
  EXPECT_EQ(optimizer.param_groups()[0].lr, 0.05);
  again.step(0.8);  // the third value that is no better
  EXPECT_EQ(optimizer.param_groups()[0].lr, 0.025);
}

TEST(Schedulers, Peer115_GreedyRaisesAndLowers) {
  auto optimizer = sgd_with(0.1);
  auto scheduler = get_scheduler(
      "greedy", optimizer, std::nullopt, std::nullopt,
      {{"patience", 1}, {"factor", 0.5}, {"min_lr", 0.04}, {"max_lr", 0.3}, {"reset_start", 2}});
  const auto rate = [&](double metric) {
    scheduler->step(metric);
    return scheduler->last_lr()[0];
  };
  EXPECT_EQ(rate(1.0), 0.1);
  EXPECT_EQ(rate(0.9), 0.2);  // better more than patience times
  EXPECT_EQ(rate(0.8), 0.2);
  EXPECT_EQ(rate(0.7), 0.3);  // bounded
  EXPECT_EQ(rate(0.7), 0.3);
  EXPECT_EQ(rate(0.7), 0.15);
  EXPECT_EQ(rate(0.7), 0.15);
  EXPECT_EQ(rate(0.7), 0.075);
  rate(0.7);
  EXPECT_EQ(rate(0.7), 0.04);  // bounded; first reduction at the bound
  rate(0.7);
  EXPECT_EQ(rate(0.7), 0.1);  // the second starts over
  GreedyLR again(optimizer);
  again.load_state_dict(scheduler->state_dict());
  EXPECT_EQ(again.state_dict().at("factor").as_double(), 0.5);
  EXPECT_EQ(again.state_dict().entries().size(), 23u);
}

TEST(Schedulers, GreedySmoothsOverAWindow) {
  auto optimizer = sgd_with(0.1);
  GreedyLR scheduler(optimizer, {.smooth = true, .window_size = 2});
  for (double metric : {4.0, 2.0, 1.0}) scheduler.step(metric);
  EXPECT_EQ(scheduler.state_dict().at("best").as_double(), 1.5);
  EXPECT_EQ(scheduler.state_dict().at("_streaming_avg").at("values").items().size(), 2u);
}

TEST(Schedulers, Peer107_AdafactorScheduleShowsTheRateOfTheOptimizer) {
  auto param = torch::full({2, 2}, 2.0).requires_grad_();
  Adafactor optimizer(std::vector<torch::Tensor>{param}, AdafactorOptions{.warmup_init = true});
  AdafactorSchedule scheduler(optimizer, 0.25);
  EXPECT_EQ(scheduler.last_lr(), std::vector<double>{0.25});
  param.mutable_grad() = torch::ones_like(param);
  optimizer.step();
  scheduler.step();
  EXPECT_NEAR(scheduler.last_lr()[0], 2.0 * 1e-6, 1e-12);  // root mean square times 1e-6 per step
  EXPECT_EQ(scheduler.state_dict().at("last_epoch").as_int(), 1);
}

TEST(Schedulers, ErrorsSayWhatIsWrong) {
  auto optimizer = sgd_with(0.1);
  expect_error([&] { get_scheduler("cosinus", optimizer, 0, 10); }, "G-SCHED-1",
               {"'cosinus'", "Did you mean cosine"});
  expect_error([&] { get_scheduler("linear", optimizer, std::nullopt, 10); }, "G-SCHED-2",
               {"linear requires `num_warmup_steps`, please provide that argument."});
  expect_error([&] { get_scheduler("cosine", optimizer, 0, std::nullopt); }, "G-SCHED-2",
               {"cosine requires `num_training_steps`"});
  expect_error([&] { get_scheduler("polynomial", optimizer, 0, 10, {{"powr", 2}}); }, "G-SCHED-3",
               {"'polynomial' has no option 'powr'", "lr_end, power", "Did you mean power"});
  expect_error([&] { get_scheduler("linear", optimizer, 0, 10, {{"num_cycles", 2}}); }, "G-SCHED-3",
               {"it takes none"});
  expect_error([&] { get_scheduler("polynomial", optimizer, 0, 10, {{"lr_end", 1.0}}); },
               "G-SCHED-4", {"lr_end (1.0) must be smaller than initial lr (0.1)"});
  expect_error([&] { get_scheduler("cosine_with_min_lr", optimizer, 0, 10); }, "G-SCHED-4",
               {"one of min_lr and min_lr_rate must be set"});
  expect_error(
      [&] {
        get_scheduler("cosine_with_min_lr", optimizer, 0, 10,
                      {{"min_lr", 0.01}, {"min_lr_rate", 0.1}});
      },
      "G-SCHED-4", {"only one of min_lr"});
  expect_error([&] { get_scheduler("warmup_stable_decay", optimizer, 0, 10); }, "G-SCHED-4",
               {"'num_decay_steps' is required"});
  expect_error(
      [&] {
        get_scheduler("warmup_stable_decay", optimizer, 0, 10,
                      {{"num_decay_steps", 2}, {"decay_type", "steep"}});
      },
      "G-SCHED-4", {"'decay_type' must be linear, cosine or 1-sqrt, received \"steep\""});
  expect_error([&] { get_scheduler("cosine", optimizer, 0, 10, {{"num_cycles", "two"}}); },
               "G-SCHED-4", {"must be a number, received \"two\""});
  expect_error([&] { get_scheduler("reduce_lr_on_plateau", optimizer, 0, 10, {{"factor", 1.5}}); },
               "G-SCHED-4", {"factor must be below 1.0, received 1.5"});
  expect_error([&] { get_scheduler("greedy", optimizer, 0, 10, {{"min_lr", {1, 2, 3}}}); },
               "G-SCHED-4", {"expected 1 or 1 values for min_lr"});
  expect_error([&] { get_scheduler("reduce_lr_on_plateau", optimizer)->step(); }, "G-SCHED-5",
               {"cannot step without one"});
  expect_error([&] { get_scheduler("constant", optimizer)->step(1.0); }, "G-SCHED-5",
               {"takes no metric"});
}

TEST(Schedulers, ConstantOnesIgnoreKwargsAsTheReferenceDoes) {
  auto optimizer = sgd_with(0.1);
  EXPECT_NO_THROW(get_scheduler("constant", optimizer, 0, 10, {{"anything", 1}}));
  EXPECT_NO_THROW(get_scheduler("constant_with_warmup", optimizer, 0, 10, {{"anything", 1}}));
}

TEST(Schedulers, PolynomialWithoutDecayStepsStandsAtItsEnd) {
  auto optimizer = sgd_with(0.1);
  auto scheduler = get_scheduler("polynomial", optimizer, 2, 2, {{"lr_end", 0.01}});
  const auto rates = unroll(*scheduler, 4);
  EXPECT_NEAR(rates[1], 0.05, 1e-12);
  EXPECT_NEAR(rates[2], 0.01, 1e-12);
}

}  // namespace
}  // namespace gradus
