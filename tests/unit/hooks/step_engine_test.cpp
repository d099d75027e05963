// What the hook trainer leaves to the step engine.
#include <gradus/hooks/accelerate_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gtest/gtest.h>

#include <limits>

#include "hooks_fixture.h"

namespace gradus::hooks {
namespace {

/// Writes down what the processes do together, and makes the gradients `factor` times as large.
struct NotingStrategy : Strategy {
  NotingStrategy(std::string& log, double factor) : log_(log), factor_(factor) {}
  void prepare(torch::nn::Module&) override { log_ += "prepare "; }
  void sync_gradients(std::span<const torch::Tensor> parameters) override {
    log_ += "sync ";
    for (const auto& parameter : parameters) parameter.mutable_grad().mul_(factor_);
  }
  std::unique_ptr<NoSync> no_sync() override {
    log_ += "hold ";
    return nullptr;
  }

  std::string& log_;
  double factor_;
};

/// A hook that lets processes train together.
struct TogetherHook : Hook {
  explicit TogetherHook(std::string& log, double factor = 1) : log_(log), factor_(factor) {}
  void before_fit(Trainer& trainer) override {
    trainer.set_strategy(std::make_shared<NotingStrategy>(log_, factor_));
  }
  void after_backward(Trainer&) override { log_ += "backward "; }

  std::string& log_;
  double factor_;
};

void fit(const SmallRun& run, std::vector<HookHandle> hooks, int64_t batches) {
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(batches),
                   .optim = run.optim,
                   .epochs = 1,
                   .hooks = std::move(hooks),
                   .device = torch::kCPU});
  trainer.fit();
}

TEST(HookEngine, SynchronizesOnceAtTheEndOfAWindow) {
  for (const bool clips : {false, true}) {
    std::string log;
    std::vector<HookHandle> hooks = {std::make_shared<TogetherHook>(log),
                                     std::make_shared<GradientAccumulationHook>(2)};
    if (clips) hooks.push_back(std::make_shared<GradClipHook>());
    fit(small_run(), hooks, 3);
    EXPECT_EQ(log, "prepare hold backward backward sync backward sync ")
        << "the third batch is a window of its own";
  }
}

TEST(HookEngine, ClipsWhatTheProcessesAgreedOn) {
  const auto run = small_run(/*lr=*/1.0);
  const auto before = run.net->weight.detach().clone();
  std::string log;
  fit(run, {std::make_shared<TogetherHook>(log, 1000), std::make_shared<GradClipHook>(0.001)}, 1);
  const double moved = (run.net->weight.detach() - before).norm().item<double>();
  EXPECT_LE(moved, 0.001001);
  EXPECT_GT(moved, 0.0001);
}

/// Float16 with a loss scaler, also on the CPU.
struct HalfHook : Hook {
  void before_fit(Trainer& trainer) override {
    trainer.set_precision(torch::kHalf, {.init_scale = 4});
  }
};

TEST(HookEngine, AStepWithInfiniteGradientsIsNotMade) {
  auto run = small_run();
  std::vector<bool> made;
  int batch_number = 0;
  run.step = [&, net = run.net](const Batch& batch, Trainer&) -> Result {
    const auto loss = at::mse_loss(net->forward(batch["x"]), batch["y"]);
    const bool breaks = ++batch_number == 2;
    return {{"loss", breaks ? loss * std::numeric_limits<float>::infinity() : loss}};
  };
  const auto note = std::make_shared<LambdaHook>(Point::after_step, [&](Trainer& trainer) {
    made.push_back(trainer.did_opt_step());
    if (made.size() == 3) {
      EXPECT_EQ(trainer.step_state().optimizer_step, 2);
      EXPECT_EQ(trainer.engine().precision().scaler()->get_scale(), 2) << "halved once";
    }
  });
  fit(run, {std::make_shared<HalfHook>(), std::make_shared<GradClipHook>(), note}, 3);
  EXPECT_EQ(made, (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(run.net->weight.isfinite().all().item<bool>());
}

TEST(HookEngine, EveryRunStartsWithFloat32AndOneProcess) {
  const auto run = small_run();
  std::vector<torch::ScalarType> formats;
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 1,
                   .hooks = {std::make_shared<LambdaHook>(
                       Point::before_fit,
                       [&](Trainer& trainer) {
                         formats.push_back(trainer.engine().precision().dtype());
                         if (formats.size() == 1) trainer.set_precision(torch::kBFloat16);
                       })},
                   .device = torch::kCPU});
  trainer.fit();
  EXPECT_EQ(trainer.engine().precision().dtype(), torch::kBFloat16) << "that of the last run";
  trainer.fit();
  EXPECT_EQ(formats, (std::vector{torch::kFloat, torch::kFloat}));
}

TEST(HookEngine, AHookSaysWhichPartOfAStepItDoes) {
  struct OwnClipping : Hook {
    std::vector<StepJob> step_jobs() const override { return {StepJob::clipping}; }
  };
  const auto accelerate = std::make_shared<AccelerateHook>(AccelerateOptions{.cpu = true});
  EXPECT_EQ(message_of([&] { fit(small_run(), {accelerate, std::make_shared<OwnClipping>()}, 1); }),
            "AccelerateHook cannot be combined with OwnClipping");
}

}  // namespace
}  // namespace gradus::hooks
