// The hooks that come with the trainer.
#include <fmt/format.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/torch_file.h>
#include <gradus/hooks/accelerate_hook.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/progress_hooks.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "hooks_fixture.h"

namespace gradus::hooks {
namespace {

namespace fs = std::filesystem;

/// The weights after a run with `hooks`.
std::vector<torch::Tensor> weights_after(const SmallRun& run, std::vector<HookHandle> hooks,
                                         int64_t batches, int64_t epochs = 1) {
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(batches),
                   .valid_dl = run.batches(2),
                   .optim = run.optim,
                   .epochs = epochs,
                   .hooks = std::move(hooks),
                   .device = torch::kCPU});
  trainer.fit();
  return {run.net->weight.detach().clone(), run.net->bias.detach().clone()};
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

TEST(GradientAccumulationHook, EqualsOneStepOverTheWindow) {
  auto run = small_run();
  const auto x =
      torch::arange(40.0).reshape({-1, 2}) / 10;  // 20 rows: 5 batches of 4, windows of 2, 2 and 1
  weights_after(run, {std::make_shared<GradientAccumulationHook>(2)}, 5);
  auto expected = small_run();
  for (const auto& [first, last, scale] :
       {std::tuple{0, 8, 1.0},
        {8, 16, 1.0},
        {16, 20, 0.5}}) {  // the short window is divided by 2 as well
    const auto rows = x.slice(0, first, last);
    (at::mse_loss(expected.net->forward(rows), rows.sum(1, true)) * scale).backward();
    expected.optim->step();
    expected.optim->zero_grad();
  }
  EXPECT_TRUE(torch::allclose(run.net->weight, expected.net->weight, 1e-6, 1e-7));
  EXPECT_TRUE(torch::allclose(run.net->bias, expected.net->bias, 1e-6, 1e-7));
}

TEST(AccelerateHook, AccumulatesAndClipsLikeTheSingleHooks) {
  const auto one =
      weights_after(small_run(),
                    {std::make_shared<AccelerateHook>(AccelerateOptions{
                        .gradient_accumulation_steps = 2, .max_grad_norm = 0.5, .cpu = true})},
                    5, 2);
  const auto two = weights_after(
      small_run(),
      {std::make_shared<GradientAccumulationHook>(2), std::make_shared<GradClipHook>(0.5)}, 5, 2);
  EXPECT_TRUE(one[0].equal(two[0]));
  EXPECT_TRUE(one[1].equal(two[1]));
}

TEST(AccelerateHook, RefusesTheHooksItReplaces) {
  EXPECT_EQ(message_of([] {
              weights_after(small_run(),
                            {std::make_shared<AccelerateHook>(AccelerateOptions{.cpu = true}),
                             std::make_shared<GradClipHook>(), std::make_shared<AMPHook>()},
                            1);
            }),
            "AccelerateHook cannot be combined with GradClipHook, AMPHook");
  EXPECT_EQ(message_of([] { AccelerateHook(AccelerateOptions{.mixed_precision = "fp8"}); }),
            "AccelerateHook: mixed_precision: expected no, fp16 or bf16, received fp8");
}

TEST(GradClipHook, BoundsTheStep) {
  const auto run = small_run(/*lr=*/1.0);
  const auto before = run.net->weight.detach().clone();
  weights_after(run, {std::make_shared<GradClipHook>(0.001)}, 1);
  EXPECT_LE((run.net->weight.detach() - before).norm().item<double>(), 0.001001);
  EXPECT_EQ(message_of([] { GradClipHook(0); }),
            "GradClipHook: max_norm: expected a positive number, received 0");
}

TEST(AMPHook, RunsBothStepsInTheType) {
  auto run = small_run();
  std::set<torch::ScalarType> types;
  run.step = [&types, net = run.net](const Batch& batch, Trainer&) -> Result {
    const auto output = net->forward(batch["x"]);
    types.insert(output.scalar_type());
    return {{"loss", at::mse_loss(output.to(torch::kFloat), batch["y"])}};
  };
  weights_after(run, {std::make_shared<AMPHook>(AMPOptions{.dtype = torch::kBFloat16})}, 2);
  EXPECT_EQ(types, std::set{torch::kBFloat16});
  EXPECT_TRUE(run.net->weight.grad().defined() == false &&
              run.net->weight.scalar_type() == torch::kFloat);
  EXPECT_EQ(message_of([] { AMPHook(AMPOptions{.dtype = torch::kFloat}); }),
            "AMPHook: dtype: expected float16 or bfloat16, received Float");
}

TEST(LRSchedulerHook, MovesOnAfterRealStepsOnly) {
  const auto run = small_run(/*lr=*/0.1);
  auto schedule = std::make_shared<LRSchedulerHook>([](Optimizer& optimizer) {
    return std::make_unique<LambdaLR>(optimizer,
                                      [](int64_t step) { return 1.0 / double(1 + step); });
  });
  EXPECT_EQ(message_of([&] { schedule->lr(); }), "LRSchedulerHook has no schedule yet");
  weights_after(run, {schedule, std::make_shared<GradientAccumulationHook>(2)}, 5);  // 3 steps
  EXPECT_DOUBLE_EQ(schedule->lr(), 0.1 / 4);
}

TEST(EMAHook, ValidatesWithTheAverageAndPutsTheWeightsBack) {
  const auto run = small_run(/*lr=*/0.05);
  std::vector<double> in_training, in_validation;
  auto watch = std::make_shared<LambdaHook>(Point::after_step, [&](Trainer& trainer) {
    (trainer.training() ? in_training : in_validation).push_back(run.net->bias.item<double>());
  });
  const auto weights = weights_after(run, {std::make_shared<EMAHook>(0.5), watch}, 2);
  const double average = 0.5 * (0.5 * 0.1 + 0.5 * in_training.at(0)) + 0.5 * in_training.at(1);
  EXPECT_NEAR(in_validation.at(0), average, 1e-6);
  EXPECT_EQ(weights[1].item<double>(), in_training.at(1));
}

TEST(EMAHook, PutsTheWeightsBackWhenValidationFails) {
  auto run = small_run(0.05);
  double trained = 0;
  auto note = std::make_shared<LambdaHook>(Point::after_step, [&](Trainer& trainer) {
    if (!trainer.training()) throw Cancelled();
    trained = run.net->bias.item<double>();
  });
  EXPECT_THROW(weights_after(run, {std::make_shared<EMAHook>(0.9), note}, 2), Cancelled);
  EXPECT_EQ(run.net->bias.item<double>(), trained);
}

TEST(MetricsHook, AveragesPerEpochAndWritesJsonLines) {
  const TemporaryFolder folder;
  const auto run = small_run();
  std::vector<double> losses;
  auto watch = std::make_shared<LambdaHook>(Point::after_step, [&](Trainer& trainer) {
    if (trainer.training()) losses.push_back(trainer.loss());
  });
  auto hook = std::make_shared<MetricsHook>(
      MetricsOptions{.metrics = {std::make_shared<Loss>(), std::make_shared<SamplesPerSecond>()},
                     .tracker_type = "file",
                     .log_file = folder.path / "metrics.jsonl"});
  weights_after(run, {hook, watch}, 3);
  EXPECT_NEAR(hook->epoch_data().at("train_loss"), (losses.at(0) + losses.at(1) + losses.at(2)) / 3,
              1e-12);
  EXPECT_GT(hook->epoch_data().at("samples_per_second"), 0);
  std::ifstream file(folder.path / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].at("train_loss").get<double>(), losses.at(1));
  EXPECT_EQ(lines[1].at("step"), 8);
  EXPECT_EQ(lines[1].at("optimizer_step"), 2);
  EXPECT_EQ(lines[3].at("valid_loss").get<double>(), hook->epoch_data().at("valid_loss"));
  EXPECT_NE(hook->plot().find("train_loss"), std::string::npos);
}

TEST(MetricsHook, SaysWhichKeyAMetricMissed) {
  EXPECT_EQ(message_of([] { weights_after(small_run(), {metrics(Loss(), Accuracy())}, 1); }),
            "a metric needs 'targets' from train_step, which returned loss, preds");
  EXPECT_EQ(message_of([] { weights_after(small_run(), {metrics(LRStats())}, 1); }),
            "there is no hook LRSchedulerHook; there are MetricsHook");
}

TEST(Accuracy, ReadsScoresClassesAndProbabilities) {
  const auto accuracy = [](torch::Tensor preds, torch::Tensor targets) {
    auto run = small_run();
    run.step = [&, net = run.net](const Batch&, Trainer&) -> Result {
      return {{"loss", net->bias.sum()}, {"preds", preds}, {"targets", targets}};
    };
    auto hook = metrics(Accuracy());
    weights_after(run, {hook}, 1);
    return hook->epoch_data().at("train_accuracy");
  };
  EXPECT_DOUBLE_EQ(accuracy(torch::tensor({{0.1, 0.9}, {0.8, 0.2}}), torch::tensor({1, 1})), 0.5);
  EXPECT_DOUBLE_EQ(accuracy(torch::tensor({2, 1, 0, 2}), torch::tensor({2, 1, 0, 1})), 0.75);
  EXPECT_DOUBLE_EQ(accuracy(torch::tensor({0.7, 0.4}), torch::tensor({1, 0})), 1.0);
}

/// A run of 2 epochs of 5 batches with all hooks that have state.
struct FullRun {
  SmallRun base = small_run(0.02);
  std::shared_ptr<MetricsHook> metrics_hook = metrics(Loss());
  std::vector<HookHandle> hooks(CheckpointOptions options) const {
    return {std::make_shared<CheckpointHook>(std::move(options)), metrics_hook,
            std::make_shared<EMAHook>(0.9), std::make_shared<GradientAccumulationHook>(2),
            std::make_shared<LRSchedulerHook>([](Optimizer& optimizer) {
              return std::make_unique<LambdaLR>(
                  optimizer, [](int64_t step) { return 1.0 / double(1 + step); });
            })};
  }
};

TEST(CheckpointHook, WritesThePeersFileNames) {
  const TemporaryFolder folder;
  FullRun run;
  Trainer trainer(
      {.model = run.base.net,
       .train_step = run.base.step,
       .train_dl = run.base.batches(5),
       .valid_dl = run.base.batches(1),
       .optim = run.base.optim,
       .epochs = 2,
       .hooks = run.hooks({.save_dir = folder.path, .save_every_steps = 1, .keep_last = 2}),
       .device = torch::kCPU,
       .config = {{"model", {{"width", 4}, {"name", "true"}}}}});
  trainer.fit();
  EXPECT_EQ(files_in(folder.path),
            (std::set<std::string>{"checkpoint_step_5.pt", "checkpoint_step_6.pt",
                                   "checkpoint_best_step_4.pt", "model_final.pt", "model.pt",
                                   "config.yaml"}));
  EXPECT_EQ(read_file(folder.path / "config.yaml"), "model:\n  name: \"true\"\n  width: 4\n");
  const auto saved = read_torch_file(folder.path / "model_final.pt");
  EXPECT_EQ(saved.at("optimizer_step").as_int(), 6);
  EXPECT_EQ(saved.at("phase").as_string(), "valid");
  EXPECT_TRUE(saved.at("model").at("weight").as_tensor().equal(run.base.net->weight.detach()));
  EXPECT_FALSE(read_torch_file(folder.path / "model.pt")
                   .at("model")
                   .at("weight")
                   .as_tensor()
                   .equal(run.base.net->weight.detach()));
}

StepState fit(FullRun& run, std::vector<HookHandle> hooks) {
  Trainer trainer({.model = run.base.net,
                   .train_step = run.base.step,
                   .train_dl = run.base.batches(5),
                   .valid_dl = run.base.batches(2),
                   .optim = run.base.optim,
                   .epochs = 2,
                   .hooks = std::move(hooks),
                   .device = torch::kCPU});
  trainer.fit();
  return trainer.step_state();
}

torch::Tensor exported_weight(const std::filesystem::path& folder) {
  return read_torch_file(folder / "model.pt").at("model").at("weight").as_tensor();
}

TEST(CheckpointHook, ResumesBitEqualFromEveryFileThatASaveWrote) {
  FullRun whole;
  const TemporaryFolder folder;
  const auto all = folder.path / "whole";
  fit(whole, whole.hooks({.save_dir = all, .save_every_steps = 1, .keep_last = 100}));
  for (int step = 1; step <= 6; ++step) {
    const auto directory = folder.path / std::to_string(step);
    FullRun resumed;
    fit(resumed, resumed.hooks({.save_dir = directory,
                                .resume_path = all / fmt::format("checkpoint_step_{}.pt", step)}));
    EXPECT_TRUE(resumed.base.net->weight.equal(whole.base.net->weight)) << step;
    EXPECT_TRUE(exported_weight(directory).equal(exported_weight(all)))
        << "the average, from step " << step;
  }
}

TEST(CheckpointHook, ResumesBitEqualFromEveryBatch) {
  FullRun whole;
  const TemporaryFolder folder;
  const auto expected = fit(whole, whole.hooks({.save_dir = folder.path / "whole"}));
  for (int stop = 1; stop <= 14; ++stop) {  // batches of both passes of both epochs
    const auto directory = folder.path / std::to_string(stop);
    FullRun first;
    auto hooks = first.hooks({.save_dir = directory});
    hooks.push_back(
        std::make_shared<LambdaHook>(Point::before_step, [n = 0, stop](Trainer&) mutable {
          if (++n == stop) throw Cancelled();
        }));
    EXPECT_THROW(fit(first, hooks), Cancelled);
    EXPECT_EQ(files_in(directory), std::set<std::string>{"checkpoint_interrupted.pt"});
    FullRun second;
    const auto state =
        fit(second, second.hooks({.save_dir = directory,
                                  .resume_path = directory / "checkpoint_interrupted.pt"}));
    EXPECT_EQ(state, expected) << stop;
    EXPECT_TRUE(second.base.net->weight.equal(whole.base.net->weight)) << stop;
    EXPECT_EQ(second.metrics_hook->epoch_data(), whole.metrics_hook->epoch_data()) << stop;
    EXPECT_TRUE(exported_weight(directory).equal(exported_weight(folder.path / "whole"))) << stop;
  }
}

TEST(CheckpointHook, AMissingFileStartsFreshADamagedOneIsAnError) {
  const TemporaryFolder folder;
  FullRun fresh;
  Trainer trainer(
      {.model = fresh.base.net,
       .train_step = fresh.base.step,
       .train_dl = fresh.base.batches(1),
       .optim = fresh.base.optim,
       .epochs = 1,
       .hooks = fresh.hooks({.save_dir = folder.path, .resume_path = folder.path / "none.pt"}),
       .device = torch::kCPU});
  trainer.fit();
  EXPECT_EQ(trainer.step_state().optimizer_step, 1);
  std::ofstream(folder.path / "bad.pt") << "PK not a checkpoint";
  FullRun bad;
  Trainer damaged(
      {.model = bad.base.net,
       .train_step = bad.base.step,
       .train_dl = bad.base.batches(1),
       .optim = bad.base.optim,
       .epochs = 1,
       .hooks = bad.hooks({.save_dir = folder.path, .resume_path = folder.path / "bad.pt"}),
       .device = torch::kCPU});
  EXPECT_EQ(message_of([&] {
              damaged.fit();
            }).find("cannot resume from " + (folder.path / "bad.pt").string()),
            0u);
}

TEST(ProgressBarHook, ShowsPassesAndTheMeanLoss) {
  const auto sink = std::make_shared<TextSink>();
  const auto former = set_log_sink(sink);
  weights_after(small_run(),
                {std::make_shared<ProgressBarHook>(1), std::make_shared<MemoryProfilerHook>(),
                 std::make_shared<EmptyCudaCacheHook>()},
                3);
  set_log_sink(former);
  EXPECT_NE(sink->text.find("Epoch 1/1 [Train]"), std::string::npos) << sink->text;
  EXPECT_NE(sink->text.find("Epoch 1/1 [Valid]"), std::string::npos);
  EXPECT_NE(sink->text.find("loss="), std::string::npos);
  EXPECT_NE(sink->lines.find("MemoryProfilerHook: the model is not on a GPU"), std::string::npos);
}

}  // namespace
}  // namespace gradus::hooks
