// Signals: acted on between the batches of an evaluation, taken for one request when they come
// twice, and ignored where they were ignored before. The interrupted evaluation is repeated by the
// resumed run, which is then bit-equal to one that was never stopped.
#include <gradus/core/json.h>
#include <signal.h>
#include <sys/wait.h>

#include "regression.h"

namespace gradus::testing {
namespace {

/// Sends the process a signal after one batch of all evaluations of a run.
struct RaiseAtBatch : TrainerCallback {
  explicit RaiseAtBatch(int batch) : batch(batch) {}
  void on_prediction_step(const TrainingArguments&, TrainerState&, TrainerControl&,
                          const CallbackContext&) override {
    if (++batches == batch) ::raise(SIGTERM);
  }
  int batch;
  int batches = 0;
};

/// The metrics of every evaluation, without what a clock decides.
struct Evaluations : TrainerCallback {
  void on_evaluate(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext& at) override {
    seen.push_back(timeless({log_entry(at.metrics, 0)}).front());
  }
  std::vector<json> seen;
};

struct Outcome {
  std::vector<json> logs, evaluations;
  std::pair<float, float> weights;
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  int64_t steps = 0, patience = 0, batches = 0;
  std::vector<int64_t> saved;
};

Outcome run(TrainerOptions options, const Resume& resume, int raise_at = -1) {
  const auto evaluations = std::make_shared<Evaluations>();
  const auto raising = std::make_shared<RaiseAtBatch>(raise_at);
  const auto patience = std::make_shared<EarlyStoppingCallback>(3);
  options.callbacks = {evaluations, patience, raising, std::make_shared<InterruptCallback>()};
  const fs::path folder = *options.args.output_dir;
  Trainer trainer(std::move(options));
  trainer.train(resume);
  const auto& state = trainer.state();
  return {timeless(state.log_history),
          evaluations->seen,
          weights(trainer),
          state.best_metric,
          state.best_global_step,
          state.global_step,
          patience->patience_counter(),
          raising->batches,
          steps_saved(folder)};
}

void expect_same(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.logs, expected.logs);
  EXPECT_EQ(got.weights, expected.weights);
  EXPECT_EQ(got.best_metric, expected.best_metric);
  EXPECT_EQ(got.best_global_step, expected.best_global_step);
  EXPECT_EQ(got.steps, expected.steps);
  EXPECT_EQ(got.patience, expected.patience);
}

void expect_repeated_evaluations(const Box& box, TrainingArguments args, int every) {
  args.metric_for_best_model = "loss";
  args.load_best_model_at_end = false;
  args.output_dir = box.dir("whole");
  const auto whole = run(regression(box, args), Resume::none());
  ASSERT_GT(whole.batches, 2 * every);
  args.output_dir = box.dir();
  for (int at = 1; at <= whole.batches && !::testing::Test::HasFailure(); at += every) {
    SCOPED_TRACE(fmt::format("interrupted after batch {} of {}", at, whole.batches));
    fs::remove_all(box.run());
    auto first = run(regression(box, args), Resume::none(), at);
    EXPECT_EQ(first.batches, at) << "no batch follows";
    ASSERT_FALSE(first.saved.empty());
    EXPECT_EQ(first.saved.back(), first.steps);
    const auto second = run(regression(box, args), Resume::last());
    expect_same(second, whole);
    first.evaluations.insert(first.evaluations.end(), second.evaluations.begin(),
                             second.evaluations.end());
    EXPECT_EQ(first.evaluations, whole.evaluations) << "each evaluation is reported once";
    for (const auto step : whole.saved)
      EXPECT_TRUE(std::count(second.saved.begin(), second.saved.end(), step)) << step;
  }
}

TEST(InterruptedEvaluation, IsRepeatedWithStepsAndSaves) {
  Box box;
  expect_repeated_evaluations(box,
                              {.max_steps = 12,
                               .learning_rate = 0.1,
                               .logging_steps = 2,
                               .eval_strategy = "steps",
                               .eval_steps = 4,
                               .save_steps = 4},
                              5);
}

TEST(InterruptedEvaluation, IsRepeatedBetweenSaves) {
  Box box;
  expect_repeated_evaluations(box,
                              {.max_steps = 20,
                               .learning_rate = 0.1,
                               .lr_scheduler_type = "reduce_lr_on_plateau",
                               .lr_scheduler_kwargs = {{"patience", 0}},
                               .logging_steps = 3,
                               .eval_strategy = "steps",
                               .eval_steps = 3,
                               .save_steps = 7},
                              9);
}

TEST(InterruptedEvaluation, IsRepeatedAtTheEndOfAPass) {
  Box box;
  expect_repeated_evaluations(box,
                              {.num_train_epochs = 3,
                               .learning_rate = 0.1,
                               .logging_strategy = "epoch",
                               .eval_strategy = "epoch",
                               .save_strategy = "epoch"},
                              5);
}

TEST(InterruptedEvaluation, IsRepeatedWhereItEndsTheRunEarly) {
  Box box;
  TrainingArguments args{.max_steps = 40,
                         .learning_rate = 0.1,
                         .logging_steps = 4,
                         .eval_strategy = "steps",
                         .eval_steps = 4,
                         .save_steps = 4};
  args.greater_is_better = true;  // the loss falls, so that patience ends soon
  expect_repeated_evaluations(box, args, 7);
}

TEST(InterruptedEvaluation, IsRepeatedAfterASecondInterruption) {
  Box box;
  const TrainingArguments args{.max_steps = 12,
                               .learning_rate = 0.1,
                               .logging_steps = 2,
                               .eval_strategy = "steps",
                               .eval_steps = 4,
                               .save_steps = 6,
                               .metric_for_best_model = "loss"};
  auto undisturbed = args;
  undisturbed.output_dir = box.dir("whole");
  const auto whole = run(regression(box, undisturbed), Resume::none());
  EXPECT_EQ(run(regression(box, args), Resume::none(), 3).steps, 4);
  EXPECT_EQ(run(regression(box, args), Resume::last(), 5).steps, 4);
  EXPECT_EQ(run(regression(box, args), Resume::last(), 8 + 2).steps, 8);
  expect_same(run(regression(box, args), Resume::last()), whole);
}

TEST(InterruptedEvaluation, OfSeveralDataSetsIsRepeatedWhole) {
  Box box;
  TrainingArguments args{.max_steps = 8,
                         .learning_rate = 0.1,
                         .logging_steps = 4,
                         .eval_strategy = "steps",
                         .eval_steps = 4,
                         .save_steps = 8,
                         .metric_for_best_model = "b_loss"};
  const auto options = [&] {
    auto made = regression(box, args);
    made.eval_dataset = {{"a", RegressionData(32).rows}, {"b", RegressionData(64).rows}};
    return made;
  };
  args.output_dir = box.dir("whole");
  const auto whole = run(options(), Resume::none());
  args.output_dir = box.dir();
  const auto first = run(options(), Resume::none(), 4 + 3);  // in b, when a is done
  EXPECT_EQ(first.steps, 4);
  EXPECT_EQ(first.evaluations.size(), 1U) << "that of a";
  const auto second = run(options(), Resume::last());
  expect_same(second, whole);
  EXPECT_EQ(second.evaluations, whole.evaluations);
}

TEST(InterruptedEvaluation, BeforeTheFirstStepLeavesNothing) {
  Box box;
  const TrainingArguments args{.max_steps = 4, .eval_on_start = true, .save_steps = 2};
  auto options = regression(box, args);
  options.args.eval_strategy = "steps";
  options.args.eval_steps = 4;
  options.args.metric_for_best_model = "loss";
  const auto first = run(options, Resume::none(), 2);
  EXPECT_EQ(first.steps, 0);
  EXPECT_TRUE(first.saved.empty());
  EXPECT_NE(box->printed.find("Nothing was saved there."), std::string::npos) << box->printed;
}

TEST(InterruptedEvaluation, AnEvaluationThatIsDueIsNotBegun) {
  Box box;
  TrainingArguments args{.max_steps = 8,
                         .learning_rate = 0.1,
                         .eval_strategy = "steps",
                         .eval_steps = 4,
                         .save_steps = 8,
                         .metric_for_best_model = "loss"};
  args.output_dir = box.dir("whole");
  const auto whole = run(regression(box, args), Resume::none());
  args.output_dir = box.dir();
  auto options = regression(box, args);
  options.callbacks = {std::make_shared<EarlyStoppingCallback>(3),
                       std::make_shared<InterruptCallback>()};
  Trainer trainer(std::move(options));
  int batches = 0;
  trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step == 3) ::raise(SIGHUP);
  });
  trainer.on(Event::prediction_step, [&](const CallbackContext&, TrainerControl&) { ++batches; });
  EXPECT_EQ(trainer.train().global_step, 4);
  EXPECT_EQ(batches, 0);
  expect_same(run(regression(box, args), Resume::last()), whole);
}

// Runs `work` in a process of its own; its exit code, or the signal that ended it.
int in_a_process(const std::function<int()>& work) {
  const auto child = ::fork();
  if (child == 0) {
    try {
      ::_exit(work());
    } catch (...) {
      ::_exit(99);  // it must not go on with the other tests
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Signals, TwoWithinASecondAreOneRequest) {
  Box box;
  auto options = regression(box, {.max_steps = 20, .save_strategy = "no"});
  const auto interrupt = std::make_shared<InterruptCallback>();
  options.callbacks = {interrupt};
  Trainer trainer(std::move(options));
  trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step != 6) return;
    ::raise(SIGTERM);
    ::usleep(20'000);
    ::raise(SIGTERM);
    ::raise(SIGHUP);
    for (int i = 0; i < 1000 && !box->has_printed(); ++i) ::usleep(1000);
  });
  EXPECT_EQ(trainer.train().global_step, 7);
  EXPECT_EQ(interrupt->received(), SIGTERM);
  EXPECT_EQ(steps_saved(box.run()), std::vector<int64_t>{7});
  EXPECT_NE(box->printed.find("SIGTERM: the run is being saved and stops. The same again after one "
                              "second ends it at once, without saving.\n"),
            std::string::npos)
      << box->printed;
}

TEST(Signals, TheFormerHandlerHearsThemAfterARun) {
  static int heard = 0;
  struct sigaction counts{}, after{};
  counts.sa_handler = [](int) { heard++; };
  sigaction(SIGTERM, &counts, nullptr);
  const auto run = [](int64_t signal_at) {
    Box box;
    auto options = regression(box, {.max_steps = 3, .save_strategy = "no"});
    options.callbacks = {std::make_shared<InterruptCallback>()};
    Trainer trainer(std::move(options));
    trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
      if (at.state.global_step == signal_at) ::raise(SIGTERM);
    });
    return trainer.train().global_step;
  };
  EXPECT_EQ(run(/*signal_at=*/-1), 3);
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, counts.sa_handler) << "no signal: the former handler is back";

  EXPECT_EQ(run(/*signal_at=*/1), 2);
  ::raise(SIGTERM);
  EXPECT_EQ(heard, 0) << "the same request, which the run has fulfilled";
  ::usleep(1'100'000);
  ::raise(SIGTERM);
  EXPECT_EQ(heard, 1) << "a second later it is another one";
  ::signal(SIGTERM, SIG_DFL);
}

TEST(Signals, OneAfterTheLastSaveDoesNotSaveAgain) {
  Box box;
  const auto state_after = [&](const char* name, bool raises) {
    auto options = regression(
        box,
        {.output_dir = box.dir(name), .max_steps = 6, .save_strategy = "steps", .save_steps = 3});
    const auto interrupt = std::make_shared<InterruptCallback>();
    options.callbacks = {interrupt};
    Trainer trainer(std::move(options));
    trainer.on(Event::save, [&](const CallbackContext& at, TrainerControl&) {
      if (raises && at.state.global_step == 6) ::raise(SIGTERM);
    });
    trainer.train();
    EXPECT_EQ(interrupt->received(), raises ? SIGTERM : 0);
    return read_json(fs::path(box.dir(name)) / "checkpoint-6/gradus_state.json");
  };
  EXPECT_EQ(state_after("disturbed", true), state_after("whole", false));
}

TEST(Signals, ASecondOneAfterASecondHasItsUsualEffect) {
  if (on_gpu()) GTEST_SKIP() << "a CUDA context does not survive a fork";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer cannot follow the threads of a process that was forked";
#endif
  Box box;
  const auto ended_by = in_a_process([&] {
    auto options = regression(box, {.max_steps = 20, .save_strategy = "no"});
    options.callbacks = {std::make_shared<InterruptCallback>()};
    Trainer trainer(std::move(options));
    trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
      if (at.state.global_step != 6) return;
      ::raise(SIGTERM);
      ::usleep(1'050'000);
      ::raise(SIGTERM);
    });
    trainer.train();
    return 0;
  });
  EXPECT_EQ(ended_by, 1000 + SIGTERM);
}

TEST(Signals, WhatIsIgnoredStaysIgnored) {
  Box box;
  struct sigaction ignore{}, before{}, during{}, after{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignore, &before);
  auto options = regression(box, {.max_steps = 5, .save_strategy = "no"});
  options.callbacks = {std::make_shared<InterruptCallback>()};
  Trainer trainer(std::move(options));
  trainer.on(Event::step_begin, [&](const CallbackContext&, TrainerControl&) {
    ::sigaction(SIGHUP, nullptr, &during);
    ::raise(SIGHUP);
  });
  EXPECT_EQ(trainer.train().global_step, 5) << "as under nohup";
  ::sigaction(SIGHUP, &before, &after);
  EXPECT_EQ(during.sa_handler, SIG_IGN);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace gradus::testing
