// Trainer::hyperparameter_search. What it finds beside transformers is the business of
// tests/differential/search_test.py.
#include <gradus/core/json.h>
#include <signal.h>

#include "regression.h"

namespace gradus::testing {
namespace {

json small_space(search::Trial& trial) {
  return {{"learning_rate", trial.suggest_float("learning_rate", 1e-3, 0.3, true)},
          {"per_device_train_batch_size",
           trial.suggest_categorical("per_device_train_batch_size", {4, 8, 16})}};
}

TrainerOptions searched(const Box& box, TrainingArguments args = {}) {
  if (args.max_steps <= 0) args.max_steps = 6;
  args.eval_strategy = "steps";
  args.eval_steps = 2;
  args.save_steps = 2;
  auto options = regression(box, std::move(args));
  options.model = nullptr;
  options.model_init = [] { return std::make_shared<RegressionModel>(); };
  return options;
}

std::shared_ptr<search::Sampler> seeded() { return search::make_sampler("tpe", 3); }

TEST(HyperparameterSearch, TrainsEveryTrialInItsFolder) {
  Box box;
  auto args = TrainingArguments{.report_to = "jsonl"};
  Trainer trainer(searched(box, args));
  const auto best = trainer.hyperparameter_search({.hp_space = small_space,
                                                   .n_trials = 7,
                                                   .sampler = seeded(),
                                                   .pruner = search::make_pruner("none")});
  EXPECT_LT(best.objective, 20);
  EXPECT_TRUE(best.hyperparameters.contains("learning_rate"));
  for (int64_t i = 0; i < 7; ++i) {
    const auto folder = box.run() / fmt::format("run-{}", i);
    ASSERT_FALSE(steps_saved(folder).empty()) << i;
    const auto last = folder / fmt::format("checkpoint-{}", steps_saved(folder).back());
    const auto state = read_json(last / "trainer_state.json");
    EXPECT_TRUE(state["is_hyper_param_search"].get<bool>());
    EXPECT_TRUE(state["trial_name"].is_null());
    const auto saved = read_json(last / "training_args.json");
    EXPECT_EQ(saved["learning_rate"], state["trial_params"]["learning_rate"]);
    EXPECT_EQ(saved["per_device_train_batch_size"],
              state["trial_params"]["per_device_train_batch_size"]);
    size_t jsonl = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".jsonl") ++jsonl;
    EXPECT_EQ(jsonl, 1u) << "a tracker of its own";
  }
  EXPECT_EQ(*trainer.args().output_dir, box.dir());
}

TEST(HyperparameterSearch, TheModelMaySeeTheTrial) {
  Box box;
  auto options = searched(box);
  std::vector<double> starts;
  options.model_init = [&](search::Trial* trial) {
    const double a = trial != nullptr ? trial->suggest_float("start", 0, 4) : 0;
    starts.push_back(a);
    return std::make_shared<RegressionModel>(a);
  };
  Trainer trainer(std::move(options));
  const auto best = trainer.hyperparameter_search({.hp_space = small_space, .n_trials = 3});
  EXPECT_EQ(starts.size(), 4u);  // once in the constructor
  EXPECT_TRUE(best.hyperparameters.contains("start"));
}

TEST(HyperparameterSearch, UnknownNamesAreWarnedOf) {
  Box box;
  Trainer trainer(searched(box));
  trainer.hyperparameter_search({.hp_space = [](search::Trial& trial) -> json {
                                   return {{"width", trial.suggest_int("width", 1, 3)}};
                                 },
                                 .n_trials = 1});
  EXPECT_EQ(box->heard("Trying to set width in the hyperparameter search"), 1);
}

TEST(HyperparameterSearch, GoesOnInItsFile) {
  Box box;
  const auto search = [&](int64_t trials) {
    Trainer trainer(searched(box));
    return trainer.hyperparameter_search({.hp_space = small_space,
                                          .n_trials = trials,
                                          .storage = box.run("study.db"),
                                          .sampler = seeded()});
  };
  search(2);
  const auto best = search(5);
  const auto again = search(5);
  EXPECT_EQ(best.run_id, again.run_id);
  EXPECT_EQ(search::Study({.storage = box.run("study.db")}).trials().size(), 5u);
}

TEST(HyperparameterSearch, MaximizesWhatIsAskedFor) {
  Box box;
  auto options = searched(box);
  options.compute_metrics = almost_accuracy;
  Trainer trainer(std::move(options));
  const auto best = trainer.hyperparameter_search(
      {.hp_space = small_space,
       .compute_objective = [](const Metrics& metrics) { return metrics.at("eval_accuracy"); },
       .n_trials = 3,
       .direction = "maximize",
       .hp_name = [](search::Trial& trial) { return fmt::format("number {}", trial.number()); }});
  EXPECT_GE(best.objective, 0);
  EXPECT_TRUE(fs::is_directory(box.run() / "number 2"));
  EXPECT_EQ(*trainer.state().trial_name, "number 2");
}

TEST(HyperparameterSearch, SaysWhatItNeeds) {
  Box box;
  Trainer trainer(regression(box));
  EXPECT_EQ(error_of([&] { trainer.hyperparameter_search(); }).id(), "G-SEARCH-6");
}

TEST(HyperparameterSearch, TheDefaultObjectiveIsTransformers) {
  EXPECT_EQ(default_compute_objective({{"eval_loss", 3}, {"epoch", 1}, {"eval_runtime", 9}}), 3);
  EXPECT_EQ(default_compute_objective({{"eval_loss", 3},
                                       {"eval_f1", 0.5},
                                       {"eval_accuracy", 0.25},
                                       {"eval_samples_per_second", 100}}),
            0.75);
}

}  // namespace
}  // namespace gradus::testing
