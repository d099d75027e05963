// Checkpoints that cannot be written: said when it happens, tried again at the next save, and the
// end of the run only after several in a row.
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <sys/resource.h>

#include "regression.h"

namespace gradus::testing {
namespace {

/// No file may grow past a few bytes while it is on: writes fail as on a full disk.
class FullDisk {
 public:
  FullDisk() { ::getrlimit(RLIMIT_FSIZE, &before_); }
  ~FullDisk() { set(false); }
  void set(bool full) {
    const rlimit limit{full ? 100 : before_.rlim_cur, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  rlimit before_{};
};

/// A model whose config cannot be written `failures` times, from step `from` on.
struct FragileModel : RegressionModel {
  void save_config(const fs::path& directory) const override {
    if (armed && failures-- > 0)
      throw Error("G-IO-2", ErrorKind::io, "cannot write config.json: No space left on device");
    RegressionModel::save_config(directory);
  }
  bool armed = false;
  mutable int failures = 0;
};

TEST(FailedSaves, OneIsSaidAndTheNextIsTried) {
  Box box;
  FullDisk disk;
  Trainer trainer(regression(box, {.max_steps = 12, .save_steps = 4}));
  std::vector<int64_t> said_at;
  trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
    disk.set(at.state.global_step == 3 || at.state.global_step == 4);
  });
  trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step != 5) return;
    // The write of step 4 has failed by now, or fails within the limit of this loop.
    for (int i = 0; i < 1000 && box->heard("checkpoint-4 could not be saved: ") == 0; ++i)
      ::usleep(1000);
    said_at.push_back(box->heard("checkpoint-4 could not be saved: "));
  });
  EXPECT_EQ(trainer.train().global_step, 12);
  EXPECT_EQ(said_at, std::vector<int64_t>{1}) << "before the next save";
  EXPECT_EQ(box->heard("File too large"), 1);
  EXPECT_EQ(box->heard("The run goes on and tries the next save; after 3 failures in a row it "
                       "ends (--save_failures_allowed). This is number 1."),
            1);
  EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{8, 12}));
}

TEST(FailedSaves, SeveralInARowEndTheRunAndTheLastGoodOneStays) {
  for (const int64_t allowed : {1, 3}) {
    Box box;
    FullDisk disk;
    bool is_mended = false;
    Trainer trainer(regression(box, {.max_steps = 40,
                                     .save_steps = 4,
                                     .save_total_limit = 1,
                                     .save_failures_allowed = allowed}));
    trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
      if (at.state.global_step == 6 && !is_mended) trainer.wait_for_saves(), disk.set(true);
    });
    const auto error = error_of([&] { trainer.train(); });
    disk.set(false);
    is_mended = true;
    EXPECT_EQ(error.id(), "G-CKPT-6");
    EXPECT_TRUE(error.message().starts_with("a checkpoint could not be saved: cannot write "))
        << error.message();
    EXPECT_NE(error.advice().find(fmt::format(
                  "It is failure {0} in a row; --save_failures_allowed is {0}.", allowed)),
              std::string::npos)
        << error.advice();
    EXPECT_NE(
        error.advice().find("The newest checkpoint is " + (box.run() / "checkpoint-4").string()),
        std::string::npos)
        << error.advice();
    EXPECT_EQ(steps_saved(box.run()), std::vector<int64_t>{4});
    EXPECT_TRUE(verify_checkpoint(box.run() / "checkpoint-4", Verify::full).complete());
    EXPECT_EQ(box->heard("could not be saved: "), allowed);
    const auto step = trainer.state().global_step;
    EXPECT_TRUE(step >= 4 + 4 * allowed && step <= 8 + 4 * allowed) << step;
    EXPECT_EQ(trainer.train(Resume::last()).global_step, 40) << "and the Trainer can be used again";
  }
}

TEST(FailedSaves, OneThatSucceedsStartsTheCountAnew) {
  Box box;
  auto options = regression(box, {.max_steps = 24, .save_steps = 2, .save_failures_allowed = 2});
  const auto model = std::make_shared<FragileModel>();
  options.model = model;
  Trainer trainer(std::move(options));
  trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
    model->armed = at.state.global_step % 4 == 1;  // every other save fails
    model->failures = 1;
  });
  EXPECT_EQ(trainer.train().global_step, 24);
  EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{4, 8, 12, 16, 20, 24}));
}

TEST(FailedSaves, TheLastCheckpointGetsASecondAttempt) {
  Box box;
  Trainer whole(regression(box, {.output_dir = box.dir("whole"), .max_steps = 6, .save_steps = 4}));
  whole.train();
  for (const int failures : {1, 2}) {
    auto options = regression(box, {.max_steps = 6, .save_steps = 4});
    const auto model = std::make_shared<FragileModel>();
    options.model = model;
    Trainer trainer(std::move(options));
    trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
      model->armed = at.state.global_step == 5;
      model->failures = failures;
    });
    const auto error = error_of([&] { trainer.train(); });
    EXPECT_EQ(box->heard("The last checkpoint of the run is saved once more."), failures);
    if (failures == 2) {
      EXPECT_EQ(error.id(), "G-CKPT-6") << "never silently";
      EXPECT_FALSE(trainer.is_in_train());
    } else {
      EXPECT_EQ(error.id(), "none") << error.what();
      EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{4, 6}));
      EXPECT_EQ(read_file(box.run() / "checkpoint-6/gradus_state.json"),
                read_file(box.run("whole") / "checkpoint-6/gradus_state.json"));
      EXPECT_EQ(
          timeless(read_json(box.run() / "checkpoint-6/trainer_state.json")["log_history"]),
          timeless(read_json(box.run("whole") / "checkpoint-6/trainer_state.json")["log_history"]));
    }
    fs::remove_all(box.run());
  }
}

TEST(FailedSaves, ACheckpointThatWasNotWrittenIsNotTheBest) {
  Box box;
  auto options = regression(box, {.max_steps = 12,
                                  .logging_strategy = "no",
                                  .eval_strategy = "steps",
                                  .eval_steps = 4,
                                  .save_steps = 4,
                                  .save_total_limit = 1,
                                  .load_best_model_at_end = true,
                                  .metric_for_best_model = "accuracy",
                                  .greater_is_better = true});
  const auto model = std::make_shared<FragileModel>();
  options.model = model;
  int evaluations = 0;
  options.compute_metrics = [&](const EvalPrediction&) {
    return Metrics{{"accuracy", std::vector<double>{0.5, 0.9, 0.2}.at(size_t(evaluations++))}};
  };
  Trainer trainer(std::move(options));
  trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
    model->armed = at.state.global_step == 7;
    model->failures = 1;
  });
  trainer.train();
  const auto best = (box.run() / "checkpoint-4").string();
  EXPECT_EQ(trainer.state().best_global_step, 8);
  EXPECT_EQ(trainer.state().best_model_checkpoint, best);
  EXPECT_EQ(box->heard("The best model so far, that of step 8, is not on disk."), 1);
  EXPECT_EQ(steps_saved(box.run()), std::vector<int64_t>{4}) << "the best that was saved stays";
  EXPECT_EQ(read_json(box.run() / "checkpoint-4/trainer_state.json")["best_model_checkpoint"],
            best);
}

TEST(FailedSaves, TheWaitThrowsWhatWentWrong) {
  Box box;
  auto options = regression(box, {.max_steps = 8, .save_steps = 4});
  const auto model = std::make_shared<FragileModel>();
  model->armed = true;
  model->failures = 1;
  options.model = model;
  Trainer trainer(std::move(options));
  std::string id;
  trainer.on(Event::save, [&](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step == 4) id = error_of([&] { trainer.wait_for_saves(); }).id();
  });
  EXPECT_EQ(trainer.train().global_step, 8);
  EXPECT_EQ(id, "G-CKPT-6");
}

}  // namespace
}  // namespace gradus::testing
