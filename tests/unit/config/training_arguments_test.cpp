#include <gradus/config/launch_environment.h>
#include <gradus/config/parse_args.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace gradus {
namespace {

// Sets environment variables for one test and puts the old values back.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<std::string, const char*>> values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name.c_str());
      old_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
      value == nullptr ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value, 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : old_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> old_;
};

template <class Work>
std::string failure_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.id() + ": " + error.message();
  }
  return "no error";
}

TEST(TrainingArguments, StepsOrRatioTakesBothKinds) {
  const TrainingArguments args{.warmup_steps = 0.1, .logging_steps = 10, .eval_steps = 0.5};
  EXPECT_TRUE(args.warmup_steps.is_ratio());
  EXPECT_EQ(args.warmup_steps.steps(95), 10);
  EXPECT_FALSE(args.logging_steps.is_ratio());
  EXPECT_EQ(args.logging_steps.steps(95), 10);
  EXPECT_EQ(StepsOrRatio(1.0).steps(95), 1) << "exactly 1 is one step";
  EXPECT_EQ(args.get_warmup_steps(1000), 100);
  EXPECT_EQ((TrainingArguments{.warmup_steps = 7.9}).get_warmup_steps(1000), 7);
}

TEST(TrainingArguments, DictHasEveryOptionInOrderAndHidesTokens) {
  const TrainingArguments args{
      .output_dir = "a", .logging_steps = 10, .report_to = {"jsonl"}, .hub_token = "secret"};
  const auto dict = args.to_dict();
  EXPECT_EQ(dict.size(), training_options().size());
  EXPECT_EQ(dict.begin().key(), "output_dir");
  EXPECT_EQ(dict["hub_token"], "<HUB_TOKEN>");
  EXPECT_EQ(dict["logging_steps"], 10);
  EXPECT_EQ(dict["report_to"], nlohmann::json({"jsonl"}));
  EXPECT_EQ(args.to_json_string().substr(0, 22), "{\n  \"output_dir\": \"a\",");
  EXPECT_EQ(args.to_string().find("secret"), std::string::npos);
  EXPECT_NE(args.to_string().find("\nlogging_steps=10,\n"), std::string::npos);
  EXPECT_EQ(args.to_string().substr(0, 41), "TrainingArguments(\naccelerator_config=Non");
}

TEST(TrainingArguments, DictGoesBack) {
  TrainingArguments args{.output_dir = "a",
                         .lr_scheduler_kwargs = {{"min_lr", 1e-6}},
                         .warmup_steps = 0.1,
                         .optim_target_modules = StringOrList{"q", "k"},
                         .label_names = std::vector<std::string>{"x"}};
  EXPECT_EQ(TrainingArguments::from_json(args.to_dict()), args);
  const auto resolved = args.resolved();
  EXPECT_EQ(TrainingArguments::from_json(resolved.to_dict()), resolved);
  EXPECT_EQ(failure_of([] { TrainingArguments::from_json({{"learning_rat", 1}}); }),
            "G-CONF-1: arguments: unknown option learning_rat");
  EXPECT_EQ(failure_of([] { TrainingArguments::from_json({{"seed", "x"}}); }),
            "G-CONF-2: arguments: seed: expected an integer, received \"x\"");
}

TEST(TrainingArguments, SanitizedDictHoldsOnlyScalars) {
  const auto dict = (TrainingArguments{.lr_scheduler_kwargs = {{"a", true}},
                                       .label_names = std::vector<std::string>{"it's", "b"}})
                        .to_sanitized_dict();
  EXPECT_EQ(dict["tf32"], "None");
  EXPECT_EQ(dict["lr_scheduler_kwargs"], "{'a': True}");
  EXPECT_EQ(dict["label_names"], "[\"it's\", 'b']");
  EXPECT_EQ(dict["train_batch_size"], 8);
  EXPECT_EQ(dict["bf16"], false);
  EXPECT_EQ(dict["learning_rate"], 5e-5);
}

TEST(TrainingArguments, SettersReturnTheObjectAndCheckAsTransformersDoes) {
  TrainingArguments args;
  args.set_training({.learning_rate = 1e-4, .batch_size = 32})
      .set_evaluate({.strategy = "steps", .steps = 100})
      .set_testing({.batch_size = 4});
  EXPECT_TRUE(args.do_train && args.do_eval && args.do_predict);
  EXPECT_EQ(args.learning_rate, 1e-4);
  EXPECT_EQ(args.per_device_train_batch_size, 32);
  EXPECT_EQ(args.eval_steps, StepsOrRatio(100));
  EXPECT_EQ(args.per_device_eval_batch_size, 4);
  args.set_save({.strategy = "epoch", .total_limit = 2})
      .set_logging({.steps = 5, .report_to = "tensorboard", .level = "info"});
  EXPECT_EQ(args.save_total_limit, 2);
  EXPECT_FALSE(args.logging_nan_inf_filter)
      << "transformers' setter defaults differ from the field's";
  args.set_optimizer({.name = "sgd", .beta1 = 0.8})
      .set_lr_scheduler({.name = "cosine", .warmup_steps = 0.05})
      .set_dataloader({.num_workers = 2, .sampler_seed = 1});
  EXPECT_EQ(args.optim, "sgd");
  EXPECT_EQ(args.warmup_steps, 0.05);
  EXPECT_EQ(args.data_seed, 1);
  args.set_push_to_hub({.model_id = "me/model"});
  EXPECT_TRUE(args.push_to_hub);
  EXPECT_EQ(failure_of([&] { args.set_save({.strategy = "steps", .steps = 0}); }),
            "G-CONF-4: set_save: strategy \"steps\" needs a positive number of steps, received 0");
  EXPECT_TRUE(failure_of([&] {
                args.set_evaluate({.strategy = "steps", .steps = 0});
              }).starts_with("G-CONF-4: set_evaluate"));
  EXPECT_TRUE(
      failure_of([&] { args.set_logging({.steps = 0}); }).starts_with("G-CONF-4: set_logging"));
  EXPECT_EQ(
      failure_of([&] { args.set_evaluate({.strategy = "best"}); }),
      "G-CONF-3: set_evaluate: strategy: must be one of no, steps or epoch, received \"best\"");
}

TEST(TrainingArguments, ShardSizes) {
  EXPECT_EQ(TrainingArguments().max_shard_bytes(), 50'000'000'000);
  const std::pair<const char*, int64_t> cases[] = {{"2GiB", 2147483648}, {"2GIB", 2147483648},
                                                   {"500MB", 500000000}, {"8Mb", 8000000},
                                                   {"1.5 KiB", 1536},    {"4096", 4096}};
  for (const auto& [text, bytes] : cases)
    EXPECT_EQ((TrainingArguments{.max_shard_size = text}).max_shard_bytes(), bytes) << text;
  for (const auto* text : {"", "GB", "5XB", "-1GB", "0MB"})
    EXPECT_NE(failure_of([&] {
                TrainingArguments{.max_shard_size = text}.resolved();
              }).find("G-CONF-3: max_shard_size: must be a size, received"),
              std::string::npos)
        << text;
}

TEST(ProfileSteps, AreOneStepOrAFirstAndALast) {
  TrainingArguments{.profile_steps = "11:13"}.resolved();
  TrainingArguments{.profile_steps = "4"}.resolved();
  for (const auto* text : {"0:3", "5:3", "a:b", "3:", ":3", "1:2:3", "-1"})
    EXPECT_NE(failure_of([&] {
                TrainingArguments{.profile_steps = text}.resolved();
              }).find("G-CONF-3: profile_steps: must be FIRST:LAST, received"),
              std::string::npos)
        << text;
}

TEST(LaunchEnvironment, ReadsTorchrunAndRefusesNonsense) {
  const Environment none({{"RANK", nullptr},
                          {"WORLD_SIZE", nullptr},
                          {"LOCAL_RANK", nullptr},
                          {"LOCAL_WORLD_SIZE", nullptr},
                          {"OMPI_COMM_WORLD_RANK", nullptr},
                          {"PMI_RANK", nullptr},
                          {"SLURM_PROCID", nullptr}});
  EXPECT_EQ(launch_environment().world_size, 1);
  EXPECT_TRUE(TrainingArguments().should_log());
  {
    const Environment second(
        {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
    const TrainingArguments args;
    EXPECT_EQ(args.process_index(), 3);
    EXPECT_EQ(args.world_size(), 4);
    EXPECT_EQ(args.local_process_index(), 0);
    EXPECT_TRUE(args.should_log()) << "log_on_each_node: the first of its machine";
    EXPECT_FALSE((TrainingArguments{.log_on_each_node = false}).should_log());
    EXPECT_FALSE(args.should_save());
    EXPECT_TRUE((TrainingArguments{.save_on_each_node = true}).should_save());
    EXPECT_EQ((TrainingArguments{
                   .log_on_each_node = false, .log_level = "info", .log_level_replica = "error"})
                  .get_process_log_level(),
              LogLevel::error);
  }
  EXPECT_EQ((TrainingArguments{.log_level = "detail"}).get_process_log_level(), LogLevel::debug);
  EXPECT_EQ(TrainingArguments().get_process_log_level(), log_level());
  {
    const Environment mpi({{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
    EXPECT_EQ(launch_environment().local_rank, 1);
  }
  const Environment broken({{"RANK", "two"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(failure_of(launch_environment),
            "G-CONF-8: environment variable RANK: expected a number, received \"two\"");
  const Environment beyond({{"RANK", "4"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(
      failure_of(launch_environment),
      "G-CONF-8: environment variable RANK is 4, but WORLD_SIZE is 4: expected a rank below it");
}

TEST(ParseArgs, FillsOverTheProgramsDefaults) {
  const char* argv[] = {"program", "--max_steps", "5"};
  const auto args = parse_args(
      3, argv,
      TrainingArguments{.output_dir = "runs/smooth", .max_steps = 40, .logging_steps = 10});
  EXPECT_EQ(args.max_steps, 5);
  EXPECT_EQ(args.output_dir, "runs/smooth");
  EXPECT_EQ(args.logging_steps, 10);
}

TEST(ParseArgsDeathTest, EndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* wrong[] = {"program", "--max_step", "5"};
  EXPECT_EXIT(parse_args(3, wrong), ::testing::ExitedWithCode(2),
              "gradus: unknown option --max_step \\[G-CONF-1\\]");
  const char* contradictory[] = {"program", "--fp16", "--bf16"};
  EXPECT_EXIT(parse_args(3, contradictory), ::testing::ExitedWithCode(2),
              "fp16 and bf16 are both on");
  const char* help[] = {"program", "--help"};
  EXPECT_EXIT(parse_args(2, help), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gradus
