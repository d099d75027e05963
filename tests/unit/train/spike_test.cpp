// Losses that jump: found, skipped, gone back on; and what the log says of a run that goes wrong.
#include <gradus/core/json.h>

#include "regression.h"
#include "train/loss_watch.h"
#include "train/rows_of_batches.h"
#include "train/run_monitor.h"

namespace gradus::testing {
namespace {

LossWatch watched(const std::vector<double>& losses) {
  LossWatch watch(torch::kCPU, 8);
  for (size_t i = 0; i < losses.size(); ++i) {
    watch.add(torch::tensor(losses[i]));
    watch.end_step({0, int64_t(i)});
  }
  return watch;
}

TEST(LossWatch, FindsTheFirstThatIsFarAbove) {
  std::vector<double> losses(40, 1.0);
  for (size_t i = 0; i < losses.size(); ++i) losses[i] += 0.01 * double(i % 5);
  EXPECT_FALSE(watched(losses).look());
  losses[30] = 5;
  losses[31] = 7;
  auto watch = watched(losses);
  const auto spike = watch.look();
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->place, (LossWatch::Place{0, 30}));
  EXPECT_NEAR(spike->usual, 1.02, 0.01);
  EXPECT_FALSE(watch.look()) << "those before were forgotten";
}

TEST(LossWatch, NothingIsFarAboveAtFirst) {
  EXPECT_FALSE(watched({1, 1, 1, 50, 1}).look());
  EXPECT_TRUE(watched({1, 1, 1, NAN, 1}).look());
  EXPECT_TRUE(watched({INFINITY}).look());
}

TEST(LossWatch, WhatIsNearlyZeroIsNotFarAbove) {
  // Learned by heart: losses differ by rounding.
  std::vector<double> losses(60, 0.0);
  for (size_t i = 0; i < 16; ++i) losses[i] = 2.0 / double(i + 1);
  losses[3] = 1e9;  // what comes once at first is no measure
  losses[40] = 1e-6;
  losses[45] = 1e-3;
  EXPECT_FALSE(watched(losses).look());
  losses[50] = 0.5;
  const auto spike = watched(losses).look();
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->place, (LossWatch::Place{0, 50}));
  // Nothing but zeros says nothing about what is far.
  std::vector<double> zeros(40, 0.0);
  zeros[30] = 1e-9;
  EXPECT_FALSE(watched(zeros).look());
}

TEST(LossWatch, TheFirstLevelIsInTheCheckpoint) {
  auto watch = watched(std::vector<double>(16, 1.0));
  watch.look();
  for (int i = 0; i < 70; ++i) {
    watch.add(torch::tensor(0.0));
    watch.end_step({0, i});
  }
  watch.look();
  LossWatch other(torch::kCPU, 8);
  other.load(json::parse(watch.state().dump()));
  for (auto* each : {&watch, &other}) {
    each->add(torch::tensor(1e-6));
    EXPECT_FALSE(each->take_current({0, 0}));
    each->add(torch::tensor(0.5));
    EXPECT_TRUE(each->take_current({0, 0}));
  }
}

TEST(LossWatch, IsInTheCheckpoint) {
  auto watch = watched(std::vector<double>(20, 1.0));
  watch.look();
  watch.leave_out({2, 5});
  LossWatch other(torch::kCPU, 8);
  other.load(json::parse(watch.state().dump()));
  EXPECT_EQ(other.left_out(), watch.left_out());
  other.add(torch::tensor(9.0));
  EXPECT_TRUE(other.take_current({0, 0}));
}

TEST(RowsOfBatches, ASamplerMayHaveMoreRowsThanTheData) {
  using Rows = std::vector<int64_t>;
  const auto data = from_tensors({{"x", torch::arange(4)}});
  const DataLoader repeated(
      {.dataset = data,
       .batch_size = 2,
       .sampler = repeat_sampler(4, {.mini_repeat_count = 3, .batch_size = 2, .shuffle = false})});
  EXPECT_EQ(rows_of_batches(repeated, 0, 0, 2, 6), (Rows{0, 0, 0, 1}));
  EXPECT_EQ(rows_of_batches(repeated, 0, 3, 1, 6), (Rows{2, 2}));
  EXPECT_EQ(rows_of_batches(repeated, 0, 5, 3, 6), (Rows{3, 3}));
  const DataLoader plain({.dataset = data, .batch_size = 3});
  EXPECT_EQ(rows_of_batches(plain, 0, 1, 1, 2), (Rows{3}));
  for (const auto* loader : {&repeated, &plain})
    for (const int64_t beyond : {6, 7, 1000})
      EXPECT_EQ(rows_of_batches(*loader, 0, beyond, 4, 6), Rows{}) << beyond;
}

/// 64 rows of a line, in order; `poisoned` has a value of 1e30.
TrainerOptions poisoned_line(const Box& box, TrainingArguments args, int64_t poisoned) {
  auto options = regression(box, std::move(args));
  RegressionData data(64);
  auto x = data.x.clone();
  if (poisoned >= 0) x[poisoned] = 1e30;
  options.train_dataset = from_tensors({{"input_x", x}, {"labels", data.ys[0]}});
  return options;
}

TrainingArguments spiky(const std::string& action) {
  return {.per_device_train_batch_size = 4,
          .num_train_epochs = 6,
          .learning_rate = 0.2,
          .logging_steps = 4,
          .save_strategy = "no",
          .spike_action = action};
}

TEST(Spikes, WithoutAnActionTheyAreSaid) {
  Box box;
  Trainer trainer(poisoned_line(box, spiky("none"), 21));
  trainer.train();
  EXPECT_EQ(box->heard("--spike_action rollback leaves them out"), 1);
  EXPECT_FALSE(std::isfinite(weights(trainer).first));
}

// Each of the 6 passes has the bad row in another batch, which is found and left out.
TEST(Spikes, ARollbackLeavesTheBatchOut) {
  for (const std::string action : {"rollback", "skip"}) {
    Box box;
    Trainer clean(poisoned_line(box, spiky("none"), -1));
    clean.train();
    Trainer trainer(poisoned_line(box, spiky(action), 21));
    trainer.train();
    EXPECT_EQ(trainer.state().global_step, clean.state().global_step);
    EXPECT_EQ(box->heard(action == "skip" ? "is skipped" : "goes back"), 6) << action;
    EXPECT_EQ(box->heard("21"), 6) << "the row is named";
    EXPECT_NEAR(weights(trainer).first, weights(clean).first, 0.05) << action;
    EXPECT_NEAR(weights(trainer).second, weights(clean).second, 0.05) << action;
    for (const auto& entry : trainer.state().log_history)
      EXPECT_LT(entry.value("loss", 0.0), 30) << entry;
  }
}

TEST(Spikes, ScrambledLabelsAreFoundToo) {
  Box box;
  auto args = spiky("rollback");
  auto options = poisoned_line(box, args, -1);
  RegressionData data(64);
  auto labels = data.ys[0].clone();
  labels[40] = 300;
  options.train_dataset = from_tensors({{"input_x", data.x}, {"labels", labels}});
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_GE(box->heard("goes back"), 4) << "not before there is something usual";
  EXPECT_GE(box->heard("40"), 4);
  EXPECT_NEAR(weights(trainer).first, 2, 0.6);
}

// A resumed run goes back to the same state and leaves out the same batches.
TEST(Spikes, AResumeIsBitEqual) {
  for (const std::string action : {"rollback", "skip"}) {
    Box box;
    auto args = spiky(action);
    args.save_strategy = "steps";
    args.save_steps = 3;
    Trainer whole(poisoned_line(box, args, 21));
    whole.train();
    for (const auto step : steps_saved(box.run())) {
      auto again = args;
      again.save_strategy = "no";
      Trainer resumed(poisoned_line(box, again, 21));
      resumed.train(Resume::from(box.run() / fmt::format("checkpoint-{}", step)));
      EXPECT_EQ(weights(resumed), weights(whole)) << action << " from step " << step;
      EXPECT_EQ(timeless(resumed.state().log_history), timeless(whole.state().log_history))
          << action << " from step " << step;
    }
  }
}

TEST(Spikes, AccumulatedWindowsAreLeftOutWhole) {
  Box box;
  auto args = spiky("rollback");
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  Trainer trainer(poisoned_line(box, args, 21));
  trainer.train();
  EXPECT_EQ(box->heard("goes back"), 6);
  EXPECT_TRUE(std::isfinite(weights(trainer).first));
}

// Everything is a spike: the run does not go back for ever.
TEST(Spikes, ARunThatStaysBadGoesOn) {
  Box box;
  auto args = spiky("rollback");
  args.num_train_epochs = 2;
  auto options = poisoned_line(box, args, -1);
  options.train_dataset =
      from_tensors({{"input_x", torch::full({64}, 1e30)}, {"labels", torch::ones({64})}});
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(trainer.state().global_step, 32);
}

/// Rows of a line in order; those from `first` on lie higher by `shift`.
TrainerOptions shifted_line(const Box& box, TrainingArguments args, int64_t rows, int64_t first,
                            double shift) {
  args.train_sampling_strategy = "sequential";
  auto options = regression(box, std::move(args));
  const RegressionData data(rows);
  auto labels = data.ys[0].clone();
  labels.slice(0, first) += shift;
  options.train_dataset = from_tensors({{"input_x", data.x}, {"labels", labels}});
  return options;
}

// From the middle on all labels are others: that is no bad row, and nobody wants a run that leaves
// out all the rest.
TEST(Spikes, AnotherLevelIsTakenForUsualAfterEightSteps) {
  for (const std::string action : {"rollback", "skip"})
    for (const int64_t logging_steps : {1, 4, 40}) {
      Box box;
      auto args = spiky(action);
      args.num_train_epochs = 1;
      args.logging_steps = double(logging_steps);
      args.lr_scheduler_type = "constant";
      Trainer trainer(shifted_line(box, args, 400, 200, 30));
      trainer.train();
      const auto said = action + " " + std::to_string(logging_steps);
      EXPECT_EQ(box->heard(action == "skip" ? "is skipped" : "goes back"), 8) << said;
      EXPECT_EQ(box->heard("goes on with what is usual now"), 1) << said;
      EXPECT_EQ(trainer.state().global_step, 100) << said;
      EXPECT_GT(weights(trainer).second, 6) << said << ": it goes on to learn";
    }
}

// A run that was saved among the steps that are left out goes on to count them.
TEST(Spikes, AResumeKnowsHowManyStepsWereLeftOut) {
  for (const std::string action : {"rollback", "skip"}) {
    Box box;
    auto args = spiky(action);
    args.num_train_epochs = 1;
    args.save_strategy = "steps";
    args.save_steps = 54;  // the shift comes after step 50
    Trainer whole(shifted_line(box, args, 400, 200, 30));
    whole.train();
    auto again = args;
    again.save_strategy = "no";
    Trainer resumed(shifted_line(box, again, 400, 200, 30));
    resumed.train(Resume::from(box.run() / "checkpoint-54"));
    EXPECT_EQ(weights(resumed), weights(whole)) << action;
    EXPECT_EQ(timeless(resumed.state().log_history), timeless(whole.state().log_history)) << action;
  }
}

// Each return begins where the step before was left out, not at the last log.
TEST(Spikes, ManyBadBatchesCostOneReturnEach) {
  Box box;
  auto args = spiky("rollback");
  args.num_train_epochs = 1;
  args.logging_steps = 16;
  auto options = shifted_line(box, args, 64, 64, 0);
  const RegressionData data(64);
  auto x = data.x.clone();
  for (const int64_t row : {21, 25, 40}) x[row] = 1e30;
  options.train_dataset = from_tensors({{"input_x", x}, {"labels", data.ys[0]}});
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(box->heard("goes back"), 3);
  EXPECT_EQ(box->heard("from step 16 to step 0 "), 1);
  EXPECT_EQ(box->heard("from step 16 to step 6 "), 1);
  EXPECT_EQ(box->heard("from step 16 to step 7 "), 1);
  EXPECT_TRUE(std::isfinite(weights(trainer).first));
}

/// Its gradient is not a number where x is 0, and its loss is finite there.
struct RootModel : RegressionModel {
  RootModel() : RegressionModel(1) {}
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    const auto y = (inputs["input_x"] * a).abs().sqrt() + b;
    return {{"loss", torch::mse_loss(y, inputs["labels"])}, {"logits", y}};
  }
};

// The step after it is the first with a bad loss, and is innocent.
TEST(Spikes, AGradientThatIsNotFiniteIsOneToo) {
  for (const std::string action : {"none", "rollback", "skip"}) {
    Box box;
    auto args = spiky(action);
    auto options = shifted_line(box, args, 64, 64, 0);
    const RegressionData data(64);
    auto x = data.x.clone();
    x[5] = 0;  // in the second step of each of the 6 passes
    options.train_dataset = from_tensors({{"input_x", x}, {"labels", data.ys[0]}});
    options.model = std::make_shared<RootModel>();
    Trainer trainer(std::move(options));
    trainer.train();
    EXPECT_EQ(std::isfinite(weights(trainer).first), action != "none") << action;
    if (action == "none") continue;
    EXPECT_EQ(box->heard("(rows 4, 5, 6, 7) or its gradient is not finite"),
              action == "rollback" ? 6 : 0);
    EXPECT_EQ(box->heard("its loss or its gradient is not finite"), action == "skip" ? 6 : 0);
    EXPECT_EQ(box->heard("not finite"), 6) << action;
  }
}

/// The regression rows, once; the last one is poisoned.
struct PoisonedStream : IterableDataset {
  std::optional<Example> next() override {
    if (at == rows) return std::nullopt;
    const auto i = at++;
    return Example{{"input_x", i + 1 == rows ? torch::tensor(1e30F) : data.x[i]},
                   {"labels", data.ys[0][i]}};
  }
  void reset(int64_t) override { at = 0; }
  int64_t rows = 64, at = 0;
  RegressionData data{64};
};

// Nobody knows beforehand that the data ends, and no log is due there.
TEST(Spikes, TheLastStepOfAStreamIsLookedAt) {
  Box box;
  auto args = spiky("rollback");
  args.max_steps = 40;
  args.logging_steps = 5;
  auto options = poisoned_line(box, args, -1);
  options.train_dataset = std::make_shared<PoisonedStream>();
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(trainer.state().global_step, 40);
  EXPECT_EQ(box->heard("goes back from step 16 to step 15"), 1);
  EXPECT_EQ(box->heard("goes back from step 32 to step 30"), 1);
  EXPECT_TRUE(std::isfinite(weights(trainer).first));
}

TEST(RunMonitor, SaysEveryThingOnce) {
  Box box;
  RunMonitor monitor;
  monitor.begin(0);
  double now = 0;
  const auto log = [&](double loss, double norm, int64_t filtered = 0) {
    monitor.logged({{"loss", loss}, {"grad_norm", norm}}, filtered, now += 10);
  };
  for (int i = 0; i < 8; ++i) log(1, 1);
  EXPECT_TRUE(box->messages.empty());
  log(1, 100);
  log(1, 200);
  EXPECT_EQ(box->heard("gradient norm explodes"), 1);
  log(NAN, 1);
  log(1, 1, 3);
  EXPECT_EQ(box->heard("not finite"), 1);
  for (int i = 0; i < 4; ++i) {
    monitor.waited_for_data(6);
    log(1, 1, 3);
  }
  EXPECT_EQ(box->heard("waits for data 60 %"), 1);
  for (int i = 0; i < 20; ++i) monitor.gpu_is_busy(15);
  EXPECT_EQ(box->heard("busy only 15 %"), 1);
  monitor.waited_for_save(0.5, now + 1);
  EXPECT_EQ(box->heard("checkpoint takes longer"), 0);
  monitor.waited_for_save(30, now + 60);
  monitor.waited_for_save(30, now + 90);
  EXPECT_EQ(box->heard("checkpoint takes longer"), 1);
  monitor.disk_has(10'000'000'000, 1'000'000'000, "/d");
  EXPECT_EQ(box->heard("nearly full"), 0);
  monitor.disk_has(2'000'000'000, 1'000'000'000, "/d");
  EXPECT_EQ(box->heard("2.00 GB are free, a checkpoint takes 1.00 GB"), 1);
  EXPECT_EQ(box->messages.size(), 6u);
}

}  // namespace
}  // namespace gradus::testing
