#include <gradus/config/gradient_checkpointing.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

// The rules of transformers' __post_init__; the names follow its tests. options_test.py compares
// both sides.
namespace gradus {
namespace {

using Words = std::vector<std::string>;

std::string resolve_failure(const TrainingArguments& args) {
  try {
    args.resolved();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_FALSE(error.message().empty());
    return error.id() + ": " + error.message();
  }
  return "no error";
}

class Messages : public LogSink {
 public:
  void message(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  void print(std::string_view) override {}
  Words lines;
};

TEST(Resolve, IsIdempotent) {
  const TrainingArguments args{.output_dir = "~/x",
                               .logging_steps = 10.0,
                               .report_to = "all",
                               .eval_strategy = "steps",
                               .load_best_model_at_end = true,
                               .accelerator_config = {{"even_batches", false}},
                               .debug = "underflow_overflow"};
  const auto once = args.resolved();
  EXPECT_EQ(once.resolved(), once);
}

TEST(Resolve, OutputDirDefaultsIsExpandedAndNotCreated) {
  EXPECT_EQ(TrainingArguments().resolved().output_dir, "trainer_output");
  const auto home = (TrainingArguments{.output_dir = "~/foo"}).resolved().output_dir;
  EXPECT_EQ(home, std::string(std::getenv("HOME")) + "/foo");
  const auto folder =
      std::filesystem::temp_directory_path() / ("gradus-never-" + std::to_string(::getpid()));
  TrainingArguments{.output_dir = folder.string()}.resolved();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Resolve, TorchEmptyCacheStepsMustBePositive) {
  EXPECT_EQ(resolve_failure({.torch_empty_cache_steps = 1}), "no error");
  EXPECT_EQ(resolve_failure({.torch_empty_cache_steps = 0}),
            "G-CONF-3: torch_empty_cache_steps: must be at least 1, received 0");
  EXPECT_EQ(resolve_failure({.torch_empty_cache_steps = -1}),
            "G-CONF-3: torch_empty_cache_steps: must be at least 1, received -1");
  EXPECT_THROW(TrainingArguments::from_json({{"torch_empty_cache_steps", 1.0}}), Error);
  EXPECT_THROW(TrainingArguments::from_json({{"torch_empty_cache_steps", "none"}}), Error);
}

TEST(Resolve, UnknownWordsAreRefused) {
  EXPECT_EQ(resolve_failure({.eval_strategy = "sometimes"}),
            "G-CONF-3: eval_strategy: must be one of no, steps or epoch, received \"sometimes\"");
  EXPECT_EQ(resolve_failure({.eval_strategy = "best"}),
            "G-CONF-3: eval_strategy: must be one of no, steps or epoch, received \"best\"");
  for (const auto& args :
       {TrainingArguments{.logging_strategy = "x"}, TrainingArguments{.save_strategy = "x"},
        TrainingArguments{.hub_strategy = "x"}, TrainingArguments{.lr_scheduler_type = "x"},
        TrainingArguments{.optim = "x"}, TrainingArguments{.log_level = "x"},
        TrainingArguments{.train_sampling_strategy = "x"}, TrainingArguments{.debug = "x"}})
    EXPECT_TRUE(resolve_failure(args).starts_with("G-CONF-3:")) << resolve_failure(args);
}

TEST(Resolve, DoEvalFollowsEvalStrategy) {
  EXPECT_TRUE((TrainingArguments{.eval_strategy = "epoch"}).resolved().do_eval);
  EXPECT_FALSE(TrainingArguments().resolved().do_eval);
  EXPECT_TRUE((TrainingArguments{.do_eval = true}).resolved().do_eval);
}

TEST(Resolve, EvalStepsFallBackToLoggingSteps) {
  EXPECT_EQ(
      (TrainingArguments{.logging_steps = 10, .eval_strategy = "steps"}).resolved().eval_steps,
      StepsOrRatio(10));
  EXPECT_EQ((TrainingArguments{.logging_steps = 10, .eval_strategy = "steps", .eval_steps = 0})
                .resolved()
                .eval_steps,
            StepsOrRatio(10));
  EXPECT_EQ(
      (TrainingArguments{.logging_steps = 10, .eval_strategy = "epoch"}).resolved().eval_steps,
      std::nullopt);
}

TEST(Resolve, ZeroStepsAreRefused) {
  EXPECT_EQ(
      resolve_failure({.logging_strategy = "no", .logging_steps = 0, .eval_strategy = "steps"}),
      "G-CONF-4: eval_strategy is steps, but eval_steps and logging_steps are both 0");
  EXPECT_EQ(resolve_failure({.logging_steps = 0}),
            "G-CONF-4: logging_strategy is steps, but logging_steps is 0");
  EXPECT_EQ(resolve_failure({.logging_strategy = "epoch", .logging_steps = 0}), "no error");
}

TEST(Resolve, FractionalStepsAboveOneAreRefused) {
  EXPECT_EQ(resolve_failure({.logging_steps = 10.5}),
            "G-CONF-3: logging_steps: must be an integer when above 1, received 10.5");
  EXPECT_EQ(resolve_failure({.eval_strategy = "steps", .eval_steps = 1.5}),
            "G-CONF-3: eval_steps: must be an integer when above 1, received 1.5");
  EXPECT_EQ(resolve_failure({.save_steps = 2.5}),
            "G-CONF-3: save_steps: must be an integer when above 1, received 2.5");
  EXPECT_EQ(
      resolve_failure(
          {.logging_steps = 0.5, .eval_strategy = "steps", .eval_steps = 0.5, .save_steps = 0.5}),
      "no error");
  EXPECT_EQ(resolve_failure({.save_strategy = "no", .save_steps = 2.5}), "no error");
  const auto whole = (TrainingArguments{.logging_steps = 10.0}).resolved().logging_steps;
  EXPECT_TRUE(whole.is_whole());
  EXPECT_EQ(whole, 10);
}

TEST(Resolve, LoadBestModelNeedsMatchingStrategies) {
  EXPECT_EQ(
      resolve_failure(
          {.eval_strategy = "steps", .save_strategy = "epoch", .load_best_model_at_end = true}),
      "G-CONF-4: load_best_model_at_end needs the same eval_strategy and save_strategy, received "
      "steps and epoch");
  EXPECT_EQ(resolve_failure({.load_best_model_at_end = true}),
            "G-CONF-4: load_best_model_at_end needs the same eval_strategy and save_strategy, "
            "received no and steps");
  EXPECT_EQ(
      resolve_failure(
          {.eval_strategy = "steps", .save_strategy = "best", .load_best_model_at_end = true}),
      "no error");
  EXPECT_EQ(resolve_failure({.save_strategy = "no", .load_best_model_at_end = true}), "no error")
      << "both no, as in transformers";
}

TEST(Resolve, LoadBestModelNeedsMultiples) {
  const auto with = [](StepsOrRatio eval, StepsOrRatio save) {
    return resolve_failure({.eval_strategy = "steps",
                            .eval_steps = eval,
                            .save_strategy = "steps",
                            .save_steps = save,
                            .load_best_model_at_end = true});
  };
  EXPECT_EQ(with(10, 15),
            "G-CONF-4: load_best_model_at_end needs save_steps to be a multiple of eval_steps, "
            "received 15 and 10");
  EXPECT_EQ(with(10, 20), "no error");
  EXPECT_EQ(with(0.1, 20),
            "G-CONF-4: load_best_model_at_end needs save_steps and eval_steps of one kind, "
            "received 20 and 0.1");
  EXPECT_EQ(with(10, 0.5),
            "G-CONF-4: load_best_model_at_end needs save_steps and eval_steps of one kind, "
            "received 0.5 and 10");
  EXPECT_EQ(with(0.1, 0.3), "no error") << "0.3 % 0.1 is not 0 in floating point";
  EXPECT_EQ(with(0.2, 0.3),
            "G-CONF-4: load_best_model_at_end needs save_steps to be a multiple of eval_steps, "
            "received 0.3 and 0.2");
}

TEST(Resolve, MetricForBestModelDefaults) {
  const auto best =
      (TrainingArguments{
           .eval_strategy = "epoch", .save_strategy = "epoch", .load_best_model_at_end = true})
          .resolved();
  EXPECT_EQ(best.metric_for_best_model, "loss");
  EXPECT_EQ(best.greater_is_better, false);
  EXPECT_EQ((TrainingArguments{.metric_for_best_model = "accuracy"}).resolved().greater_is_better,
            true);
  EXPECT_EQ((TrainingArguments{.metric_for_best_model = "eval_loss"}).resolved().greater_is_better,
            false);
  EXPECT_EQ((TrainingArguments{.metric_for_best_model = "accuracy", .greater_is_better = false})
                .resolved()
                .greater_is_better,
            false);
  EXPECT_EQ((TrainingArguments{.lr_scheduler_type = "greedy", .eval_strategy = "epoch"})
                .resolved()
                .metric_for_best_model,
            "loss");
  EXPECT_EQ(TrainingArguments().resolved().greater_is_better, std::nullopt);
}

TEST(Resolve, OneHalfPrecisionAtMost) {
  EXPECT_EQ(resolve_failure({.bf16 = true, .fp16 = true}), "G-CONF-4: fp16 and bf16 are both on");
  EXPECT_EQ(resolve_failure({.bf16_full_eval = true, .fp16_full_eval = true}),
            "G-CONF-4: fp16_full_eval and bf16_full_eval are both on");
  EXPECT_EQ(resolve_failure({.bf16 = true, .fp16_full_eval = true}), "no error");
  EXPECT_EQ((TrainingArguments{.fp16 = true}).mixed_precision(), "fp16");
  EXPECT_EQ((TrainingArguments{.bf16 = true}).mixed_precision(), "bf16");
}

TEST(Resolve, SchedulesThatFollowAMetricNeedEvaluation) {
  EXPECT_EQ(resolve_failure({.lr_scheduler_type = "reduce_lr_on_plateau"}),
            "G-CONF-4: lr_scheduler_type reduce_lr_on_plateau follows the evaluation metric, but "
            "eval_strategy is no");
  EXPECT_EQ(
      resolve_failure({.lr_scheduler_type = "greedy"}),
      "G-CONF-4: lr_scheduler_type greedy follows the evaluation metric, but eval_strategy is no");
  EXPECT_EQ(
      resolve_failure({.lr_scheduler_type = "reduce_lr_on_plateau", .eval_strategy = "steps"}),
      "no error");
}

TEST(Resolve, TorchCompileFollowsItsSettings) {
  EXPECT_TRUE(
      (TrainingArguments{.torch_compile_mode = "reduce-overhead"}).resolved().torch_compile);
  const auto eager = (TrainingArguments{.torch_compile_backend = "eager"}).resolved();
  EXPECT_TRUE(eager.torch_compile);
  EXPECT_EQ(eager.torch_compile_backend, "eager");
  EXPECT_EQ((TrainingArguments{.torch_compile = true}).resolved().torch_compile_backend,
            "inductor");
}

TEST(Resolve, ReportToIsNormalised) {
  const auto trackers = [](StringOrList given) {
    return (TrainingArguments{.report_to = std::move(given)}).resolved().report_to.words();
  };
  EXPECT_EQ(trackers("none"), Words{});
  EXPECT_EQ(trackers({"none"}), Words{});
  EXPECT_EQ(trackers("tensorboard"), Words{"tensorboard"});
  EXPECT_EQ(trackers({"jsonl", "tensorboard"}), (Words{"jsonl", "tensorboard"}));
  auto all = trackers("all");
  ASSERT_GE(all.size(), 2u);
  all.resize(2);  // other tests may add some
  EXPECT_EQ(all, (Words{"jsonl", "tensorboard"}));
  EXPECT_FALSE((TrainingArguments{.report_to = "jsonl"}).resolved().report_to.is_single());
  EXPECT_EQ(resolve_failure({.report_to = "comet_ml"}),
            "G-TRACK-1: report_to: gradus does not report to comet_ml yet");
  const auto unknown = resolve_failure({.report_to = {"tensorbord"}});
  EXPECT_TRUE(unknown.starts_with("G-TRACK-1: report_to: must be all, none, jsonl")) << unknown;
  EXPECT_TRUE(unknown.ends_with(", received \"tensorbord\"")) << unknown;
}

TEST(Resolve, KubeflowIsNotSwitchedOnBehindTheBack) {
  ::setenv("KUBEFLOW_TRAINER_SERVER_URL", "here", 1);
  EXPECT_EQ(TrainingArguments().resolved().report_to.words(), Words{});
  ::unsetenv("KUBEFLOW_TRAINER_SERVER_URL");
}

TEST(Resolve, WarmupStepsMayBeARatioButNotNegative) {
  EXPECT_EQ(resolve_failure({.warmup_steps = -1}),
            "G-CONF-3: warmup_steps: must be at least 0, received -1");
  EXPECT_EQ(resolve_failure({.warmup_steps = 0.5}), "no error");
  EXPECT_EQ(resolve_failure({.warmup_steps = 10}), "no error");
}

TEST(Resolve, DebugIsSplit) {
  EXPECT_EQ((TrainingArguments{.debug = "underflow_overflow  tpu_metrics_debug"})
                .resolved()
                .debug.words(),
            (Words{"underflow_overflow", "tpu_metrics_debug"}));
  EXPECT_EQ(TrainingArguments().resolved().debug.words(), Words{});
  EXPECT_EQ(resolve_failure({.debug = "everything"}),
            "G-CONF-3: debug: must be one of underflow_overflow or tpu_metrics_debug, received "
            "\"everything\"");
}

TEST(Resolve, PrefetchNeedsWorkers) {
  EXPECT_EQ(resolve_failure({.dataloader_prefetch_factor = 2}),
            "G-CONF-4: dataloader_prefetch_factor is 2, but dataloader_num_workers is 0");
  EXPECT_EQ(resolve_failure({.dataloader_num_workers = 2, .dataloader_prefetch_factor = 2}),
            "no error");
}

TEST(Resolve, UseCpuTurnsPinnedMemoryOff) {
  EXPECT_FALSE((TrainingArguments{.use_cpu = true}).resolved().dataloader_pin_memory);
  EXPECT_TRUE(TrainingArguments().resolved().dataloader_pin_memory);
}

TEST(Resolve, TokensSeenMayBeABoolean) {
  EXPECT_EQ(TrainingArguments::from_json({{"include_num_input_tokens_seen", true}})
                .include_num_input_tokens_seen,
            "all");
  EXPECT_EQ(TrainingArguments::from_json({{"include_num_input_tokens_seen", false}})
                .include_num_input_tokens_seen,
            "no");
  EXPECT_TRUE(resolve_failure({.include_num_input_tokens_seen = "some"}).starts_with("G-CONF-3:"));
}

TEST(Resolve, DictionaryFieldsMayBeJsonText) {
  EXPECT_EQ((TrainingArguments{.lr_scheduler_kwargs = R"({"num_cycles": "2"})"})
                .resolved()
                .lr_scheduler_kwargs,
            nlohmann::json({{"num_cycles", 2}}));
  EXPECT_NE(resolve_failure({.lr_scheduler_kwargs = "{oops"})
                .find("G-CONF-2: lr_scheduler_kwargs: the dictionary is not valid JSON"),
            std::string::npos);
  EXPECT_EQ(
      resolve_failure({.lr_scheduler_kwargs = {1, 2}}),
      "G-CONF-2: lr_scheduler_kwargs: expected a dictionary such as {\"key\": 1}, received [1, 2]");
}

TEST(Resolve, AcceleratorConfigGetsItsDefaults) {
  const auto config = TrainingArguments().resolved().accelerator_config;
  EXPECT_EQ(config, nlohmann::json::parse(
                        R"({"split_batches": false, "dispatch_batches": null, "even_batches": true,
              "use_seedable_sampler": true, "non_blocking": false,
              "gradient_accumulation_kwargs": null})"));
  EXPECT_EQ(
      resolve_failure({.accelerator_config = {{"use_configured_state", true}}}),
      "G-CONF-5: accelerator_config: use_configured_state needs an Accelerator made in Python");
  EXPECT_EQ((TrainingArguments{.accelerator_config = {{"split_batches", true}}})
                .resolved()
                .accelerator_config["split_batches"],
            true);
  EXPECT_EQ(resolve_failure({.accelerator_config = {{"split_batch", true}}}),
            "G-CONF-1: accelerator_config: unknown key split_batch");
  EXPECT_EQ(resolve_failure({.accelerator_config = {{"even_batches", 3}}}),
            "G-CONF-2: accelerator_config: even_batches: expected true or false, received 3");
  EXPECT_NE(resolve_failure({.accelerator_config = "no/such.json"})
                .find("G-CONF-6: accelerator_config: "),
            std::string::npos);
  const nlohmann::json steps = {{"gradient_accumulation_kwargs", {{"num_steps", 4}}}};
  EXPECT_EQ((TrainingArguments{.accelerator_config = steps}).resolved().gradient_accumulation_steps,
            4);
  EXPECT_EQ(resolve_failure({.gradient_accumulation_steps = 2, .accelerator_config = steps}),
            "G-CONF-4: gradient_accumulation_steps is 2, but accelerator_config says num_steps 4");
}

TEST(Resolve, AcceleratorConfigMayBeAFile) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("gradus-accelerate-" + std::to_string(::getpid()) + ".json");
  std::ofstream(file) << R"({"even_batches": false})";
  EXPECT_EQ((TrainingArguments{.accelerator_config = file.string()})
                .resolved()
                .accelerator_config["even_batches"],
            false);
  std::filesystem::remove(file);
}

TEST(Resolve, WhatGradusDoesNotDoIsRefusedInOneSentence) {
  EXPECT_EQ(resolve_failure({.push_to_hub = true}),
            "G-CONF-5: push_to_hub and the hub_* options: gradus does not talk to the Hub");
  EXPECT_TRUE(resolve_failure({.hub_model_id = "me/model"}).starts_with("G-CONF-5:"));
  EXPECT_EQ(resolve_failure({.deepspeed = {{"zero_optimization", {{"stage", 2}}}}}),
            "G-CONF-5: deepspeed: gradus does not run DeepSpeed");
  EXPECT_TRUE(resolve_failure({.parallelism_config = {{"tp_size", 2}}}).starts_with("G-CONF-5:"));
  EXPECT_EQ(resolve_failure({.ddp_backend = "mpi"}),
            "G-CONF-5: ddp_backend: gradus has nccl and gloo only");
  EXPECT_EQ(resolve_failure({.ddp_backend = "gloo"}), "no error");
}

TEST(Resolve, Tf32NeedsAGpu) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(resolve_failure({.tf32 = true}), "G-CONF-5: tf32: there is no GPU that could use it");
  EXPECT_EQ(resolve_failure({.tf32 = false}), "no error");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Resolve, HarmlessPythonOptionsAreAnsweredOnce) {
  const auto sink = std::make_shared<Messages>();
  const auto before = set_log_sink(sink);
  TrainingArguments{.use_liger_kernel = true}.resolved();
  TrainingArguments{.use_liger_kernel = true}.resolved();
  set_log_sink(before);
  ASSERT_EQ(sink->lines.size(), 1u);
  EXPECT_NE(sink->lines[0].find("use_liger_kernel has no effect"), std::string::npos);
}

TEST(GradientCheckpointing, ABudgetRecomputesTheFewestBlocksThatStayInside) {
  using How = GradientCheckpointing;
  const auto blocks = [](double budget, int64_t all) {
    const How how{.memory_budget = budget};
    const auto count = how.recomputed(all);
    for (int64_t i = 0; i < all; ++i) EXPECT_EQ(how.recomputes(i, all), i < count);
    return count;
  };
  EXPECT_EQ(blocks(0.9, 12), 2);
  EXPECT_EQ(blocks(0.5, 12), 7);  // 5 blocks and 7 inputs, a twelfth each, are below 6 blocks
  EXPECT_EQ(blocks(0.5, 11), 6);  // 5 blocks and 6 inputs are 5.5
  EXPECT_EQ(blocks(0.1, 12), 12);
  EXPECT_EQ(blocks(0.01, 12), 12);
  EXPECT_EQ(blocks(0.999, 1), 1);
  EXPECT_FALSE(How::of({}));
  EXPECT_FALSE(How::of({.gradient_checkpointing = true, .activation_memory_budget = 1.0}));
  EXPECT_EQ(How::of({.gradient_checkpointing = true})->recomputed(4), 4);
  EXPECT_EQ(How::of({.activation_memory_budget = 0.0})->recomputed(4), 4);
  EXPECT_TRUE(How::of({.gradient_checkpointing_kwargs = {{"offload", true}},
                       .activation_memory_budget = 0.5})
                  ->offload);
}

TEST(GradientCheckpointing, RefusesBudgetsThatMeanNothing) {
  EXPECT_EQ(resolve_failure({.activation_memory_budget = 1.5}),
            "G-CONF-3: activation_memory_budget: must be at least 0 and at most 1, received 1.5");
  EXPECT_EQ(resolve_failure({.activation_memory_budget = -0.1}),
            "G-CONF-3: activation_memory_budget: must be at least 0 and at most 1, received -0.1");
  EXPECT_EQ(resolve_failure({.gradient_checkpointing_kwargs = {{"every_n_layers", 2}},
                             .activation_memory_budget = 0.5}),
            "G-CONF-4: activation_memory_budget is 0.5, and gradient_checkpointing_kwargs has "
            "every_n_layers 2: both choose the blocks that are computed again");
  EXPECT_EQ(resolve_failure({.gradient_checkpointing = true, .activation_memory_budget = 0.5}),
            "no error");
}

TEST(GradientCheckpointing, ReadsItsSettings) {
  const auto read = [](const char* text) {
    return GradientCheckpointing::from_kwargs(nlohmann::json::parse(text));
  };
  const auto how = read(
      R"({"every_n_layers": 3, "offload": true, "preserve_rng_state": false,
          "use_reentrant": false, "determinism_check": "none"})");
  EXPECT_EQ(how.every_n_layers, 3);
  EXPECT_TRUE(how.offload);
  EXPECT_FALSE(how.preserve_rng_state);
  EXPECT_EQ(read("null").every_n_layers, 1);
  for (const auto& [text, part] : std::map<const char*, std::string>{
           {R"({"every_n_layers": 0})", "every_n_layers is 0; expected a whole number from 1"},
           {R"({"every_n_layers": 1.5})", "every_n_layers is 1.5; expected"},
           {R"({"offload": 1})", "offload is 1; expected true or false"},
           {R"({"context_fn": "f"})", "there is no context_fn"},
           {"[1]", "[1] is not a dictionary"}}) {
    try {
      read(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-CONF-10");
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }
}

TEST(Resolve, ResumeFalseMeansNone) {
  EXPECT_EQ(
      (TrainingArguments{.resume_from_checkpoint = "false"}).resolved().resume_from_checkpoint,
      std::nullopt);
}

TEST(Resolve, ProgressBarFollowsTheLogLevel) {
  const auto before = log_level();
  set_log_level(LogLevel::error);
  EXPECT_EQ(TrainingArguments().resolved().disable_tqdm, true);
  set_log_level(LogLevel::warning);
  EXPECT_EQ(TrainingArguments().resolved().disable_tqdm, false);
  set_log_level(before);
}

}  // namespace
}  // namespace gradus
