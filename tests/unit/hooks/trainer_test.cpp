// The loop of the hook trainer: points, order, operations, counters, errors.
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/trainer.h>
#include <gradus/optim/sgd.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/nn/modules/linear.h>

#include "hooks_fixture.h"

namespace gradus::hooks {
namespace {

TEST(HookTrainer, CallsThePointsInOrder) {
  const auto run = small_run();
  auto calls = std::make_shared<Recorder>();
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(3),
                   .valid_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 2,
                   .hooks = {calls},
                   .device = torch::kCPU});
  trainer.fit();
  const std::string expected =
      "before_fit before_epoch before_step after_backward after_step before_step after_backward "
      "after_step before_step after_backward after_step before_valid before_step after_step "
      "after_epoch "
      "before_epoch before_step after_backward after_step before_step after_backward after_step "
      "before_step after_backward after_step before_valid before_step after_step after_epoch "
      "after_fit ";
  EXPECT_EQ(calls->text, expected);
  EXPECT_EQ(trainer.step_state(),
            (StepState{.batch_idx = 0, .optimizer_step = 6, .samples_seen = 24, .epoch = 1}));
}

TEST(HookTrainer, RunsHooksByOrdAndKeepsTheOrderOfEqualOnes) {
  const auto run = small_run();
  std::string order;
  const auto hook = [&](const char* name, int64_t ord) {
    auto made = std::make_shared<LambdaHook>(Point::before_fit,
                                             [&order, name](Trainer&) { order += name; });
    made->ord = ord;
    return made;
  };
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 0,
                   .hooks = {hook("c", 5), hook("a", -1), hook("d", 5), hook("b", 0)},
                   .device = torch::kCPU});
  trainer.fit();
  EXPECT_EQ(order, "abcd");
}

TEST(HookTrainer, AnActionAtTheEndOfFitMayFail) {
  const auto run = small_run();
  bool other_ran = false;
  auto hook = std::make_shared<LambdaHook>(Point::before_fit, [&](Trainer& trainer) {
    trainer.at_end_of_fit([&] { other_ran = true; });
    trainer.at_end_of_fit([] { throw std::runtime_error("the file was closed already"); });
  });
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 1,
                   .hooks = {hook},
                   .device = torch::kCPU});
  trainer.fit();
  EXPECT_TRUE(other_ran);
}

TEST(HookTrainer, AScheduleHookWithoutAScheduleIsNamed) {
  const auto run = small_run();
  auto hook =
      std::make_shared<LRSchedulerHook>([](Optimizer&) { return std::shared_ptr<LRScheduler>(); });
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 1,
                   .hooks = {hook},
                   .device = torch::kCPU});
  try {
    trainer.fit();
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-HOOK-8");
  }
}

TEST(HookTrainer, MainProcessHooksRunOnRankZeroOnly) {
  struct Main : MainProcessHook {
    int calls = 0;
    void before_fit(Trainer&) override { ++calls; }
  };
  const auto run = small_run();
  auto hook = std::make_shared<Main>();
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 1,
                   .hooks = {hook},
                   .device = torch::kCPU});
  trainer.set_accelerator(
      std::make_shared<Accelerator>(Accelerator{.num_processes = 2, .process_index = 1}));
  EXPECT_FALSE(trainer.is_main());
  trainer.fit();
  EXPECT_EQ(hook->calls, 0);
  EXPECT_EQ(trainer.step_state().samples_seen, 8);  // over both processes
  trainer.set_accelerator(nullptr);
  trainer.fit();
  EXPECT_EQ(hook->calls, 1);
}

TEST(HookTrainer, DescribesWhatHooksImplement) {
  const auto run = small_run();
  struct Quiet : Hook {};
  struct Base : Hook {
    void after_fit(Trainer&) override {}
  };
  struct Derived : Base {
    Derived() { ord = 7; }
    void before_fit(Trainer&) override {}
  };
  Trainer trainer(
      {.model = run.net,
       .train_step = run.step,
       .hooks = {std::make_shared<Derived>(), std::make_shared<Quiet>(),
                 std::make_shared<GradClipHook>(1.0),
                 std::make_shared<LambdaHook>(
                     Point::after_epoch, [](Trainer&) {}, Point::after_cancel, [](Trainer&) {})},
       .device = torch::kCPU});
  const auto sink = std::make_shared<TextSink>();
  const auto former = set_log_sink(sink);
  const auto table = trainer.describe_hooks();
  set_log_sink(former);
  EXPECT_EQ(table,
            "| Lifecycle Point | Hook | Order |\n| --------------- | ---- | ----- |\n"
            "| before_fit | GradClipHook | -5 |\n|  | Derived | 7 |\n| before_epoch | (none) | "
            "|\n| before_step | (none) | |\n| after_pred | (none) | |\n"
            "| after_loss | (none) | |\n| after_backward | (none) | |\n| after_step | (none) | "
            "|\n| before_valid | (none) | |\n| after_epoch | LambdaHook | 0 |\n"
            "| after_fit | Derived | 7 |\n| after_cancel | LambdaHook | 0 |\n");
  EXPECT_EQ(sink->text, table);
}

TEST(HookTrainer, FindsHooks) {
  const auto run = small_run();
  auto clip = std::make_shared<GradClipHook>(1.0);
  Trainer trainer(
      {.model = run.net, .train_step = run.step, .hooks = {clip}, .device = torch::kCPU});
  EXPECT_EQ(&trainer.get_hook<GradClipHook>(), clip.get());
  EXPECT_EQ(trainer.get_hook<AMPHook>(nullptr), nullptr);
  EXPECT_EQ(message_of([&] { trainer.get_hook<AMPHook>(); }),
            "there is no hook AMPHook; there are GradClipHook");
}

TEST(HookTrainer, SharesValuesByHookName) {
  struct Owner : Hook {
    void before_fit(Trainer& trainer) override {
      store(trainer, "count", 3);
      store(trainer, "word", "x");
    }
  };
  struct Reader : Hook {
    Reader() { ord = 1; }
    std::string seen;
    void before_fit(Trainer& trainer) override {
      seen = std::to_string(get<Owner>(trainer, "count", int64_t{0})) +
             get<Owner>(trainer, "word", std::string()) +
             std::to_string(get(trainer, "Owner", "none", 9));
      EXPECT_EQ(message_of([&] { get<Owner>(trainer, "word", 1.5); }).substr(0, 50),
                "trainer state 'Owner.word': expected double, recei");
    }
  };
  const auto run = small_run();
  auto reader = std::make_shared<Reader>();
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(1),
                   .optim = run.optim,
                   .epochs = 0,
                   .hooks = {reader, std::make_shared<Owner>()},
                   .device = torch::kCPU});
  trainer.fit();
  EXPECT_EQ(reader->seen, "3x9");
  EXPECT_EQ(value_as<int>(trainer.state().at("Owner.count"), "count"), 3);
}

TEST(HookTrainer, HooksWrapOperationsAndARunUndoesThem) {
  struct Wrapper : Hook {
    explicit Wrapper(std::string& log, const char* name, int64_t at) : log_(log), name_(name) {
      ord = at;
    }
    void before_fit(Trainer& trainer) override {
      trainer.operations().backward.wrap(*this, [this](const auto& previous) {
        log_ += name_;
        previous();
      });
    }
    std::string& log_;
    const char* name_;
  };
  struct Loud : Trainer {
    using Trainer::Trainer;
    std::string* log = nullptr;
    void do_backward() override {
      *log += "own ";
      Trainer::do_backward();
    }
  };
  const auto run = small_run();
  std::string log;
  Loud trainer({.model = run.net,
                .train_step = run.step,
                .train_dl = run.batches(1),
                .optim = run.optim,
                .epochs = 1,
                .hooks = {std::make_shared<Wrapper>(log, "outer ", 2),
                          std::make_shared<Wrapper>(log, "inner ", 1)},
                .device = torch::kCPU});
  trainer.log = &log;
  trainer.fit();
  trainer.fit();  // the wraps of the first run are gone
  EXPECT_EQ(log, "outer inner own outer inner own ");
}

TEST(HookTrainer, ReplacingWhatAnotherHookChangedIsAnError) {
  const auto run = small_run();
  auto amp = std::make_shared<AMPHook>(AMPOptions{.dtype = torch::kBFloat16});
  amp->ord = 50;
  Trainer late({.model = run.net,
                .train_step = run.step,
                .train_dl = run.batches(1),
                .optim = run.optim,
                .hooks = {amp, std::make_shared<GradientAccumulationHook>(2)},
                .device = torch::kCPU});
  EXPECT_EQ(message_of([&] { late.fit(); }),
            "AMPHook (ord 50) replaces do_backward, which GradientAccumulationHook (ord -10) "
            "changed before it: that would be lost");
  Trainer twice({.model = run.net,
                 .train_step = run.step,
                 .train_dl = run.batches(1),
                 .optim = run.optim,
                 .hooks = {std::make_shared<AMPHook>(), std::make_shared<AMPHook>()},
                 .device = torch::kCPU});
  EXPECT_EQ(message_of([&] { twice.fit(); }),
            "AMPHook (ord -200) replaces do_backward, which AMPHook (ord -200) changed before it: "
            "that would be lost");
}

TEST(HookTrainer, TakesTensorsListsAndDictionaries) {
  const auto run = small_run();
  using Lists = std::vector<std::vector<torch::Tensor>>;
  const auto x = torch::ones({4, 2});
  const auto loss = [&](const torch::Tensor& input) -> Result {
    return {{"loss", run.net->forward(input).mean()}};
  };
  const auto samples = [&](StepFunction step, Batches batches) {
    Trainer trainer({.model = run.net,
                     .train_step = std::move(step),
                     .train_dl = std::move(batches),
                     .optim = run.optim,
                     .epochs = 1,
                     .device = torch::kCPU});
    trainer.fit();
    return trainer.step_state().samples_seen;
  };
  EXPECT_EQ(samples([&](const torch::Tensor& b, Trainer&) { return loss(b); }, std::vector{x, x}),
            8);
  EXPECT_EQ(samples([&](const std::vector<torch::Tensor>& b, Trainer&) { return loss(b.at(0)); },
                    Lists{{x, x}}),
            4);
  EXPECT_EQ(samples([&](const AnyBatch& b, Trainer&) { return loss(b.tensor()); },
                    std::vector{Batch{{"x", x}}}),
            4);
  EXPECT_EQ(samples([&](const std::vector<torch::Tensor>& b, Trainer&) { return loss(b.at(0)); },
                    tensor_loader({{"x", torch::ones({6, 2})}, {"y", torch::ones({6})}},
                                  {.batch_size = 4})),
            6);
  EXPECT_EQ(message_of([&] {
              samples([&](const Batch& b, Trainer&) { return loss(b["x"]); }, std::vector{x});
            }),
            "the step takes a dictionary as its batch, received a tensor");
  EXPECT_EQ(message_of([&] {
              samples([&](const torch::Tensor& b, Trainer&) { return loss(b); }, Lists{{x, x}});
            }),
            "the step takes one tensor as its batch, received a list of 2");
  EXPECT_EQ(AnyBatch(torch::tensor(1.0)).rows(), 1);
}

TEST(HookTrainer, RefusesAStepWithoutAUsableLoss) {
  const auto run = small_run();
  const auto error = [&](StepFunction step, StepFunction eval = {}) {
    Trainer trainer({.model = run.net,
                     .train_step = std::move(step),
                     .train_dl = run.batches(1),
                     .valid_dl = run.batches(1),
                     .eval_step = std::move(eval),
                     .optim = run.optim,
                     .epochs = 1,
                     .device = torch::kCPU});
    return message_of([&] { trainer.fit(); });
  };
  EXPECT_EQ(error([](const Batch&, Trainer&) -> Result {
              return {{"preds", torch::ones(1)}, {"targets", torch::ones(1)}};
            }),
            "train_step returned no 'loss'; it returned preds, targets");
  EXPECT_EQ(error([](const Batch&, Trainer&) -> Result { return {}; }),
            "train_step returned no 'loss'; it returned nothing");
  EXPECT_EQ(error([](const Batch&, Trainer&) -> Result { return {{"loss", torch::ones({3, 2})}}; }),
            "train_step returned a 'loss' of shape [3, 2], expected one number");
  EXPECT_EQ(error([](const Batch&, Trainer&) -> Result { return {{"loss", torch::Tensor()}}; }),
            "train_step returned an undefined tensor as 'loss'");
  EXPECT_EQ(error(run.step,
                  [](const Batch&, Trainer&) -> Result { return {{"loss", torch::ones({2})}}; }),
            "eval_step returned a 'loss' of shape [2], expected one number");
  EXPECT_EQ(error(run.step,
                  [](const Batch&, Trainer&) -> Result { return {{"preds", torch::ones({2})}}; }),
            "");  // validation may do without
}

TEST(HookTrainer, NamesWhatIsMissing) {
  const auto run = small_run();
  EXPECT_EQ(message_of([&] { Trainer({.train_step = run.step}); }), "hooks::Trainer has no model");
  EXPECT_EQ(message_of([&] { Trainer({.model = run.net}); }), "hooks::Trainer has no train_step");
  EXPECT_EQ(message_of([&] { Trainer({.model = run.net, .train_step = run.step}).fit(); }),
            "hooks::Trainer has no train_dl");
  EXPECT_EQ(message_of([&] {
              Trainer({.model = run.net,
                       .train_step = run.step,
                       .train_dl = run.batches(1),
                       .device = torch::kCPU})
                  .fit();
            }),
            "hooks::Trainer has no optimizer");
  EXPECT_EQ(message_of([&] { HookHandle(std::shared_ptr<GradClipHook>()); }),
            "hooks: expected a hook, received a null pointer");
  EXPECT_EQ(message_of([] { GradientAccumulationHook(0); }),
            "GradientAccumulationHook: steps: expected at least 1, received 0");
}

TEST(HookTrainer, SigintRunsAfterCancelAndIsPassedOn) {
  const auto run = small_run();
  auto calls = std::make_shared<Recorder>();
  auto stop = std::make_shared<LambdaHook>(Point::before_step, [n = 0](Trainer&) mutable {
    if (++n == 2) raise(SIGINT);
  });
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = run.batches(3),
                   .optim = run.optim,
                   .epochs = 2,
                   .hooks = {stop, calls},
                   .device = torch::kCPU});
  EXPECT_THROW(trainer.fit(), Cancelled);
  EXPECT_EQ(calls->text,
            "before_fit before_epoch before_step after_backward after_step after_cancel ");
  struct sigaction now{};
  sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(HookTrainer, KnowsTheLastBatchOfAStream) {
  struct Stream : BatchSource {
    int64_t left = 0;
    std::optional<Batch> next() override {
      return left-- > 0
                 ? std::optional(Batch{{"x", torch::ones({4, 2})}, {"y", torch::ones({4, 1})}})
                 : std::nullopt;
    }
    void reset(int64_t) override { left = 5; }
  };
  const auto run = small_run();
  Trainer trainer({.model = run.net,
                   .train_step = run.step,
                   .train_dl = DataLoader(std::make_shared<Stream>()),
                   .optim = run.optim,
                   .epochs = 2,
                   .hooks = {std::make_shared<GradientAccumulationHook>(2)},
                   .device = torch::kCPU});
  trainer.fit();
  EXPECT_EQ(trainer.step_state().optimizer_step, 6);  // 2 + 2 + 1 batches, twice
  EXPECT_EQ(trainer.step_state().samples_seen, 40);
}

}  // namespace
}  // namespace gradus::hooks
