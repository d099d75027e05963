// Options that are changed on resume.
#include <gradus/optim/optimizer.h>

#include "regression.h"

namespace gradus::testing {
namespace {

// Options changed on resume win; those of optimizer and schedule too, although their states
// hold the former ones.
TEST(ChangedOnResume, SettingsOfTheOptimizerChangedOnResumeAreUsed) {
  Box box;
  Trainer(regression(box, {.max_steps = 8,
                           .learning_rate = 0.1,
                           .weight_decay = 0.0,
                           .adam_beta1 = 0.9,
                           .logging_steps = 1,
                           .save_steps = 4}))
      .train();
  const auto resumed = [&](TrainingArguments args) {
    args.output_dir = box.dir("again");
    args.logging_steps = 1;
    args.save_strategy = "no";
    auto trainer = std::make_unique<Trainer>(regression(box, std::move(args)));
    trainer->train(Resume::from(box.run() / "checkpoint-4"));
    return trainer;
  };
  const auto rate = [](const Trainer& trainer, size_t step) {
    return trainer.state().log_history.at(step - 1).at("learning_rate").get<double>();
  };
  const auto other =
      resumed({.max_steps = 8, .learning_rate = 0.06, .weight_decay = 0.2, .adam_beta1 = 0.8});
  EXPECT_DOUBLE_EQ(rate(*other, 5), 0.06 * 4 / 8);
  EXPECT_DOUBLE_EQ(rate(*other, 8), 0.06 * 1 / 8);
  EXPECT_EQ(other->optimizer()->param_groups().front().weight_decay, 0.2);
  EXPECT_EQ(other->optimizer()
                ->state_dict()
                .at("param_groups")
                .items()
                .front()
                .at("betas")
                .items()
                .front()
                .as_double(),
            0.8);
  EXPECT_EQ(box->heard("learning_rate: 0.06 (from args) != 0.1 (from training_args.json); the new "
                       "value is used."),
            1);
  const auto longer = resumed({.max_steps = 16, .learning_rate = 0.1});
  EXPECT_DOUBLE_EQ(rate(*longer, 5), 0.1 * 12 / 16)
      << "the rate of the longer schedule from the first step on";
  const auto constant =
      resumed({.max_steps = 8, .learning_rate = 0.1, .lr_scheduler_type = "constant"});
  EXPECT_DOUBLE_EQ(rate(*constant, 5), 0.1);
  const auto cosine =
      resumed({.max_steps = 8, .learning_rate = 0.1, .lr_scheduler_type = "cosine"});
  EXPECT_NEAR(rate(*cosine, 5), 0.05, 1e-12);
}

// The table of optimizers says which settings of a group come from optim_args and other options.
TEST(ChangedOnResume, EverySettingThatOptimArgsChangeOnResumeIsUsed) {
  struct Change {
    const char *optim, *before, *after, *key;
    double value;
  };
  const Change changes[] = {
      {"ademamix", "t_alpha=10,t_beta3=10", "t_alpha=20,t_beta3=10", "t_alpha", 20},
      {"ademamix", "t_alpha=10,t_beta3=10", "t_alpha=10,t_beta3=20", "t_beta3", 20},
      {"ademamix", "alpha=5", "alpha=3", "alpha", 3},
      {"rmsprop", "alpha=0.9", "alpha=0.8", "alpha", 0.8},
      {"schedule_free_adamw", "r=0", "r=0.5", "r", 0.5},
      {"stable_adamw", "max_lr=1", "max_lr=2", "max_lr", 2}};
  for (const auto& change : changes) {
    SCOPED_TRACE(std::string(change.optim) + " " + change.key);
    Box box;
    const auto run = [&](const char* optim_args, const char* folder, int64_t steps) {
      auto trainer = std::make_unique<Trainer>(regression(box, {.output_dir = box.dir(folder),
                                                                .max_steps = steps,
                                                                .optim = change.optim,
                                                                .optim_args = optim_args,
                                                                .save_steps = 2}));
      trainer->train(steps == 4 ? Resume::from(box.dir("first") + "/checkpoint-2")
                                : Resume::none());
      return trainer;
    };
    run(change.before, "first", 2);
    const auto groups =
        run(change.after, "second", 4)->optimizer()->state_dict().at("param_groups").items();
    EXPECT_EQ(groups.front().at(change.key).as_double(), change.value);
  }
}

}  // namespace
}  // namespace gradus::testing
