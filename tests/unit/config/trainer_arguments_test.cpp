// Arguments of a trainer that adds to TrainingArguments, as a program outside would write them.
#include <gradus/config/parse_args.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/schedulers.h>
#include <gradus/optim/sgd.h>
#include <gradus/trackers/tracker.h>
#include <gtest/gtest.h>

#include "../error_of.h"

namespace outside {

struct TuningDefaults : gradus::TrainingDefaults {
  static double learning_rate() { return 2e-5; }
  static gradus::StepsOrRatio logging_steps() { return 10; }
  static bool gradient_checkpointing() { return true; }
  static std::optional<bool> bf16() { return std::nullopt; }
};

struct TuningArguments {
#define GRADUS_DEFAULTS TuningDefaults
#include <gradus/config/training_arguments_fields.inc>

  std::optional<int64_t> max_length = 1024;
  bool packing = false;

  static std::span<const gradus::OptionRow<TuningArguments>> own_options();
  TuningArguments resolved() const {
    auto args = *this;
    if (!args.bf16) args.bf16 = !args.fp16;
    return gradus::resolve_fields(args);
  }
  operator gradus::TrainingArguments() const { return gradus::common_arguments(*this); }
};

constexpr gradus::OptionRow<TuningArguments> kTuningRows[] = {
    {&TuningArguments::max_length, "max_length", gradus::Group::trainer, gradus::at_least(1),
     "Longest row."},
    {&TuningArguments::packing, "packing", gradus::Group::trainer, gradus::any_value(),
     "Several examples in a row."},
};
std::span<const gradus::OptionRow<TuningArguments>> TuningArguments::own_options() {
  return kTuningRows;
}

}  // namespace outside

namespace gradus {
namespace {

using outside::TuningArguments;

TEST(TrainerArguments, HaveTheCommonFieldsFirstAndDefaultsOfTheirOwn) {
  const TuningArguments args{.output_dir = "x", .num_threads = 1, .packing = true};
  EXPECT_EQ(args.learning_rate, 2e-5);
  EXPECT_EQ(args.logging_steps, 10);
  EXPECT_TRUE(args.gradient_checkpointing);
  EXPECT_EQ(args.weight_decay, TrainingArguments().weight_decay);
  const TrainingArguments common = args;
  EXPECT_EQ(common.output_dir, "x");
  EXPECT_EQ(common.learning_rate, 2e-5);
  EXPECT_FALSE(common.bf16);
  EXPECT_TRUE(TrainingArguments(args.resolved()).bf16);
  EXPECT_FALSE(TuningArguments{.fp16 = true}.resolved().bf16.value());
}

TEST(TrainerArguments, ComeFromFlagsAndAreChecked) {
  const char* argv[] = {"program", "--max_steps", "5", "--packing", "--max_length", "16"};
  const auto args = parse_args<TuningArguments>(6, argv, {.seed = 7});
  EXPECT_EQ(args.max_steps, 5);
  EXPECT_EQ(args.seed, 7);
  EXPECT_TRUE(args.packing);
  EXPECT_EQ(args.max_length, 16);
  EXPECT_EQ(args.output_dir, "trainer_output");
  const char* wrong[] = {"program", "--max_length", "0"};
  EXPECT_EXIT(parse_args<TuningArguments>(3, wrong), ::testing::ExitedWithCode(2),
              "--max_length: must be at least 1, received 0");
  expect_error([] { TuningArguments{.max_length = 0}.resolved(); }, "G-CONF-3", {"max_length"});
}

TEST(TrainerArguments, GoThroughDictionaries) {
  const TuningArguments args{.hub_token = "secret", .max_length = 3};
  const auto dict = arguments_to_dict(args);
  EXPECT_EQ(dict.size(), TrainingArguments().to_dict().size() + 2);
  EXPECT_EQ(dict.at("hub_token"), "<HUB_TOKEN>");
  EXPECT_EQ(arguments_from_json<TuningArguments>(dict).max_length, 3);
}

TEST(TrainerArguments, AreListedWithTheirOwnDefaults) {
  ArgumentsOf<TuningArguments> arguments;
  OptionSet all, own;
  arguments.add_to(all);
  arguments.add_own_to(own);
  EXPECT_EQ(own.values().size(), 2u);
  const auto list = all.describe();
  EXPECT_EQ(list[0]["name"], "output_dir");
  EXPECT_EQ(list.back()["name"], "packing");
  EXPECT_NE(all.help().find("(default: 2e-05)"), std::string::npos);
  OptionSet none;
  ArgumentsOf<TrainingArguments>().add_own_to(none);
  EXPECT_TRUE(none.values().empty());
}

nlohmann::json choices_of(const std::string& name) {
  TrainingArguments args;
  OptionSet options;
  options.add(args, training_options());
  for (const auto& option : options.describe())
    if (option["name"] == name) return option["choices"];
  return nullptr;
}

// The option tables ask the tables of optimizers, schedules and trackers.
TEST(OptionChoices, GrowWithWhatIsRegistered) {
  expect_error([] { TrainingArguments{.optim = "late_sgd"}.resolved(); }, "G-CONF-3",
               {"optim: must be one of adamw_torch"});
  register_optimizer({"late_sgd", SGD::from_arguments});
  register_scheduler({"late_fall", [](Optimizer& optimizer, const SchedulerArguments&) {
                        return std::make_unique<LambdaLR>(optimizer, [](int64_t) { return 1.0; });
                      }});
  register_tracker("late_lines", [](const auto&) { return std::shared_ptr<Tracker>(); });
  const auto args =
      TrainingArguments{
          .lr_scheduler_type = "late_fall", .optim = "late_sgd", .report_to = {"late_lines"}}
          .resolved();
  EXPECT_EQ(args.report_to.words(), std::vector<std::string>{"late_lines"});
  EXPECT_EQ(choices_of("optim").back(), "late_sgd");
  EXPECT_EQ(choices_of("lr_scheduler_type").back(), "late_fall");
  EXPECT_EQ(choices_of("report_to").back(), "late_lines");
  expect_error([] { TrainingArguments{.optim = "late_sdg"}.resolved(); }, "G-CONF-3",
               {"Did you mean late_sgd"});
  expect_error([] { TrainingArguments{.lr_scheduler_type = "late_fal"}.resolved(); }, "G-CONF-3",
               {"Did you mean late_fall"});
  expect_error([] { TrainingArguments{.report_to = {"late_line"}}.resolved(); }, "G-TRACK-1",
               {"Did you mean late_lines"});
  TrainingArguments().set_optimizer({.name = "late_sgd"}).set_lr_scheduler({.name = "late_fall"});
}

TEST(OptionChoices, AScheduleThatFollowsAMetricNeedsEvaluations) {
  register_scheduler(
      {.name = "late_metric",
       .make = [](Optimizer& optimizer, const SchedulerArguments&) -> std::unique_ptr<LRScheduler> {
         return std::make_unique<ReduceLROnPlateau>(optimizer);
       },
       .metric_driven = true});
  expect_error([] { TrainingArguments{.lr_scheduler_type = "late_metric"}.resolved(); }, "G-CONF-4",
               {"lr_scheduler_type late_metric follows the evaluation metric"});
  const TrainingArguments args{
      .lr_scheduler_type = "late_metric", .eval_strategy = "epoch", .save_strategy = "epoch"};
  EXPECT_EQ(args.resolved().metric_for_best_model, "loss");
}

}  // namespace
}  // namespace gradus
