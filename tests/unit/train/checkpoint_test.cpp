// Checkpoints, resuming and the best model: peer-tests.md 9.2.
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/formats/torch_file.h>
#include <gradus/optim/optimizer.h>

#include "regression.h"

namespace gradus::testing {
namespace {

Names files_in(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::pair<float, float> saved_weights(const fs::path& checkpoint) {
  std::map<std::string, float> found;
  for (const auto& [name, tensor] : read_safetensors_folder(checkpoint))
    found[name] = tensor.item<float>();
  return {found.at("a"), found.at("b")};
}

/// Trains with `args`, then from each of `steps` again, and compares weights, state and logs bit
/// for bit.
void expect_resume_is_bit_equal(const TrainingArguments& args, const std::vector<int64_t>& steps,
                                const std::function<void(TrainerOptions&)>& change = {}) {
  Box box;
  const auto make = [&] {
    auto options = regression(box, args, 0, 0, /*train_len=*/128);
    if (change) change(options);
    return std::make_unique<Trainer>(std::move(options));
  };
  auto whole = make();
  whole->train();
  const auto expected = weights(*whole);
  auto expected_state = whole->state().to_json();
  expected_state["log_history"] = timeless(whole->state().log_history);
  for (const auto step : steps) {
    auto resumed = make();
    resumed->train(Resume::from(box.run() / fmt::format("checkpoint-{}", step)));
    EXPECT_EQ(weights(*resumed), expected) << "from step " << step;
    auto state = resumed->state().to_json();
    state["log_history"] = timeless(resumed->state().log_history);
    EXPECT_EQ(dump_json(state), dump_json(expected_state))
        << "from step " << step;  // as text: NaN equals NaN
  }
}

TEST(Checkpointing, TestSaveCheckpoints) {
  Box box;
  Trainer(regression(box, {.save_steps = 5})).train();
  EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{5, 10, 15, 20, 24}));
  for (const auto step : {5, 10, 15, 20, 24}) {
    const auto folder = box.run() / fmt::format("checkpoint-{}", step);
    EXPECT_EQ(files_in(folder),
              (Names{"gradus_state.json", "manifest.json", "model.safetensors", "optimizer.pt",
                     "rng_state.pth", "scheduler.pt", "trainer_state.json", "training_args.json"}));
    EXPECT_TRUE(verify_checkpoint(folder, Verify::full).complete());
  }
  Trainer(
      regression(box, {.output_dir = box.dir("only"), .save_only_model = true, .save_steps = 10}))
      .train();
  EXPECT_EQ(
      files_in(box.run("only") / "checkpoint-10"),
      (Names{"manifest.json", "model.safetensors", "trainer_state.json", "training_args.json"}));
  Trainer(regression(box, {.output_dir = box.dir("half"), .fp16 = true, .save_steps = 10})).train();
  EXPECT_TRUE(fs::exists(box.run("half") / "checkpoint-10/scaler.pt"));
}

TEST(Checkpointing, TestSaveStrategies) {
  Box box;
  Trainer(regression(box, {.output_dir = box.dir("epoch"), .save_strategy = "epoch"})).train();
  EXPECT_EQ(steps_saved(box.run("epoch")), (std::vector<int64_t>{8, 16, 24}));
  Trainer(regression(box, {.output_dir = box.dir("no"), .save_strategy = "no"})).train();
  EXPECT_EQ(steps_saved(box.run("no")), std::vector<int64_t>{});
  Trainer(regression(box, {.output_dir = box.dir("ratio"), .save_steps = 0.25})).train();
  EXPECT_EQ(steps_saved(box.run("ratio")), (std::vector<int64_t>{6, 12, 18, 24}));
  Trainer(regression(box, {.output_dir = box.dir("limit"), .save_steps = 5, .save_total_limit = 2}))
      .train();
  EXPECT_EQ(steps_saved(box.run("limit")), (std::vector<int64_t>{20, 24}));
}

TEST(Checkpointing, TestCanResumeTraining) {
  expect_resume_is_bit_equal({.learning_rate = 0.1, .logging_steps = 5, .save_steps = 5},
                             {5, 15, 16 * 3 - 3, 48});
}

TEST(Checkpointing, TestResumeTrainingWithGradientAccumulation) {
  expect_resume_is_bit_equal({.per_device_train_batch_size = 4,
                              .learning_rate = 0.1,
                              .gradient_accumulation_steps = 2,
                              .logging_steps = 5,
                              .save_steps = 5},
                             {5, 10, 15});
  expect_resume_is_bit_equal({.per_device_train_batch_size = 8,
                              .learning_rate = 0.1,
                              .gradient_accumulation_steps = 3,
                              .logging_steps = 5,
                              .save_steps = 3},
                             {3, 6, 9});
}

// The order is drawn from the global generator, so a resume needs the seed it was drawn from.
TEST(Checkpointing, TestResumeWithoutASeedableSampler) {
  TrainingArguments args{.learning_rate = 0.1, .logging_steps = 5};
  args.save_steps = 5;
  args.accelerator_config = {{"use_seedable_sampler", false}};
  expect_resume_is_bit_equal(args, {5, 15, 20, 45, 48});
  args.save_steps = 8;
  args.dataloader_num_workers = 2;
  expect_resume_is_bit_equal(args, {8, 16, 24});
}

TEST(Checkpointing, TestResumeAtTheEndOfAPass) {
  // The checkpoint of step 16 is written before on_epoch_end: the log and the evaluation of the
  // pass still follow.
  expect_resume_is_bit_equal({.learning_rate = 0.1,
                              .logging_strategy = "epoch",
                              .eval_strategy = "epoch",
                              .save_steps = 8},
                             {8, 16, 24, 32});
  expect_resume_is_bit_equal({.learning_rate = 0.1,
                              .logging_strategy = "epoch",
                              .eval_strategy = "epoch",
                              .save_strategy = "epoch"},
                             {16, 32, 48});
}

TEST(Checkpointing, TestResumeWithNanInTheLogs) {
  expect_resume_is_bit_equal(
      {.learning_rate = 0.1, .logging_steps = 3, .logging_nan_inf_filter = false, .save_steps = 4},
      {4, 8}, [](TrainerOptions& o) {
        // NaN where a batch has a large label; its gradient stays finite.
        o.compute_loss_func = [](const ModelOutput& out, const torch::Tensor& y,
                                 const std::optional<torch::Tensor>&) {
          const auto spoil = torch::full({}, y.max().item<double>() > 6 ? NAN : 0.0);
          return (out["logits"] - y).pow(2).mean() + spoil;
        };
      });
}

TEST(Checkpointing, TestResumeTrainingWithFrozenParams) {
  expect_resume_is_bit_equal(
      {.learning_rate = 0.1, .save_steps = 5}, {5, 15},
      [](TrainerOptions& o) { o.model->named_parameters()["a"].requires_grad_(false); });
  Box box;
  auto options = regression(box, {.learning_rate = 0.1}, 0.5, 0);
  options.model->named_parameters()["a"].requires_grad_(false);
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(weights(trainer).first, 0.5F);
  EXPECT_NE(weights(trainer).second, 0.0F);
}

TEST(Checkpointing, TestResumeTrainingWithShardCheckpoint) {
  expect_resume_is_bit_equal({.learning_rate = 0.1, .save_steps = 5, .max_shard_size = "0.004KB"},
                             {5, 15});
  Box box;
  Trainer(regression(box, {.max_steps = 1, .max_shard_size = "0.004KB"})).train();
  const auto index = read_json(box.run() / "checkpoint-1/model.safetensors.index.json");
  EXPECT_EQ(index.at("weight_map").at("a"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("b"), "model-00002-of-00002.safetensors");
}

/// Makes a checkpoint one that an older Python might have written: no files of gradus, and each
/// weight in a torch file of its own.
void rewrite_as_torch_shards(const fs::path& checkpoint) {
  json index = {{"metadata", {{"total_size", 8}}}, {"weight_map", json::object()}};
  int64_t number = 0;
  for (const auto& [name, tensor] : read_safetensors_folder(checkpoint)) {
    const auto file = fmt::format("pytorch_model-{:05d}-of-00002.bin", ++number);
    auto state = StateTree::dict();
    state.set(name, tensor.clone());
    write_torch_file(checkpoint / file, state);
    index["weight_map"][name] = file;
  }
  write_file_atomically(checkpoint / "pytorch_model.bin.index.json", dump_json(index));
  for (const char* file : {"model.safetensors", "manifest.json", "gradus_state.json"})
    fs::remove(checkpoint / file);
}

TEST(Checkpointing, TestResumeFromShardsOfTorchFiles) {
  Box box;
  const auto args = [&](const char* name) {
    return TrainingArguments{.output_dir = box.dir(name), .learning_rate = 0.1, .save_steps = 5};
  };
  Trainer whole(regression(box, args("a")));
  whole.train();
  Trainer(regression(box, args("b"))).train();
  rewrite_as_torch_shards(box.run("b") / "checkpoint-10");
  Trainer resumed(regression(box, args("b")));
  EXPECT_EQ(resumed.train(Resume::from(box.run("b") / "checkpoint-10")).global_step, 24);
  EXPECT_EQ(weights(resumed), weights(whole));

  const auto broken = box.run("b") / "checkpoint-15";
  rewrite_as_torch_shards(broken);
  fs::remove(broken / "pytorch_model-00002-of-00002.bin");
  fs::remove_all(box.run("b") / "checkpoint-20");
  fs::remove_all(box.run("b") / "checkpoint-24");
  const auto error = error_of([&] { Trainer(regression(box, args("b"))).train(Resume::newest()); });
  EXPECT_EQ(error.id(), "G-CKPT-3");
  EXPECT_EQ(error.message(),
            "cannot resume from " + broken.string() +
                ": the index names pytorch_model-00002-of-00002.bin, which is missing");
  EXPECT_NE(error.advice().find("The newest complete checkpoint is " +
                                (box.run("b") / "checkpoint-10").string()),
            std::string::npos)
      << error.advice();
}

TEST(Checkpointing, TestResumeWithDifferentOptimizersAndSchedules) {
  for (const char* optim : {"sgd", "adafactor", "lion_32bit", "muon"}) {
    SCOPED_TRACE(optim);
    expect_resume_is_bit_equal({.learning_rate = 0.01,
                                .lr_scheduler_type = "cosine",
                                .warmup_steps = 7,
                                .optim = optim,
                                .logging_steps = 5,
                                .save_steps = 7},
                               {7, 21});
  }
  expect_resume_is_bit_equal({.learning_rate = 0.1,
                              .lr_scheduler_type = "reduce_lr_on_plateau",
                              .lr_scheduler_kwargs = {{"patience", 0}},
                              .logging_steps = 2,
                              .eval_strategy = "steps",
                              .eval_steps = 2,
                              .save_steps = 5,
                              .metric_for_best_model = "loss",
                              .greater_is_better = true},
                             {5, 15});
}

TEST(Checkpointing, TestResumeErrors) {
  Box box;
  const auto bogus =
      error_of([&] { Trainer(regression(box, {})).train(Resume::from(box.run("bogus"))); });
  EXPECT_EQ(bogus.id(), "G-CKPT-1");
  EXPECT_EQ(bogus.message(),
            "can't find a valid checkpoint at " + box.dir("bogus") + ": there is no such folder");
  const auto none = error_of([&] { Trainer(regression(box, {})).train(Resume::newest()); });
  EXPECT_EQ(none.message(), "no valid checkpoint found in output directory (" + box.dir() + ")");
  EXPECT_EQ(Trainer(regression(box, {.max_steps = 2})).train(Resume::last()).global_step, 2)
      << "last starts anew when there is none";
  EXPECT_EQ(Trainer(regression(box, {.max_steps = 2})).train(Resume::parse("false")).global_step,
            2);  // TestTrainingWithResumeFromCheckpointFalse
  EXPECT_EQ(Resume::parse("True").kind(), Resume::Kind::newest);
  EXPECT_EQ(Resume::parse("last").kind(), Resume::Kind::last);
  EXPECT_EQ(Resume::parse("runs/checkpoint-3").path(), "runs/checkpoint-3");
}

TEST(Checkpointing, ADamagedCheckpointIsNamedAndTheNewestWholeOneOffered) {
  Box box;
  Trainer(regression(box, {.max_steps = 6, .save_steps = 2})).train();
  const auto damaged = box.run() / "checkpoint-6";
  fs::resize_file(damaged / "model.safetensors", fs::file_size(damaged / "model.safetensors") - 3);
  const auto error =
      error_of([&] { Trainer(regression(box, {.max_steps = 8})).train(Resume::from(damaged)); });
  EXPECT_EQ(error.id(), "G-CKPT-3");
  EXPECT_NE(
      error.message().find("cannot resume from " + damaged.string() + ": model.safetensors is "),
      std::string::npos)
      << error.message();
  EXPECT_NE(error.advice().find("The newest complete checkpoint is " +
                                (box.run() / "checkpoint-4").string()),
            std::string::npos)
      << error.advice();
  Trainer trainer(regression(box, {.max_steps = 8, .save_strategy = "no"}));
  EXPECT_EQ(trainer.train(Resume::last()).global_step, 8);
  EXPECT_EQ(box->heard("checkpoint-6 is not complete (model.safetensors is "), 1);
}

TEST(Checkpointing, TestResumeTrainingWithDifferentBatchSize) {
  Box box;
  Trainer(regression(box, {.per_device_train_batch_size = 4, .max_steps = 4, .save_steps = 2}))
      .train();
  EXPECT_EQ(read_json(box.run() / "checkpoint-2/trainer_state.json").at("train_batch_size"), 4);
  Trainer trainer(regression(box, {.per_device_train_batch_size = 8, .max_steps = 6}));
  EXPECT_EQ(trainer.train(Resume::from(box.run() / "checkpoint-2")).global_step, 6);
  EXPECT_EQ(trainer.state().train_batch_size, 8);
}

TEST(Checkpointing, TestCompareTrainerAndCheckpointArgsLogging) {
  Box box;
  Trainer(regression(box, {.per_device_train_batch_size = 4,
                           .max_steps = 6,
                           .eval_strategy = "steps",
                           .eval_steps = 5,
                           .save_steps = 5}))
      .train();
  const auto checkpoint = box.run() / "checkpoint-5";
  for (const bool pythons : {false, true}) {
    if (pythons)  // what Python writes has none of these
      for (const char* name : {"manifest.json", "gradus_state.json", "training_args.json"})
        fs::remove(checkpoint / name);
    box->messages.clear();
    Trainer(regression(box, {.output_dir = box.dir("again"),
                             .per_device_train_batch_size = 8,
                             .max_steps = 6,
                             .eval_strategy = "steps",
                             .eval_steps = 10,
                             .save_steps = 10}))
        .train(Resume::from(checkpoint));
    const std::string file = pythons ? "trainer_state.json" : "training_args.json";
    EXPECT_EQ(box->heard("save_steps: 10 (from args) != 5 (from " + file + ")"), 1) << file;
    EXPECT_EQ(box->heard("per_device_train_batch_size: 8 (from args) != 4 (from " + file + ")"), 1)
        << file;
    EXPECT_EQ(box->heard("eval_steps: 10 (from args) != 5 (from " + file + ")"), 1) << file;
  }
}

TEST(Checkpointing, TestAutoBatchSizeFinder) {
  const auto sizes_tried = [](int64_t first, int64_t limit, bool search) {
    Box box;
    auto options = regression(box, {.per_device_train_batch_size = first,
                                    .max_steps = 2,
                                    .auto_find_batch_size = search,
                                    .save_steps = 1});
    Trainer trainer(std::move(options));
    std::vector<int64_t> sizes;
    trainer.on(Event::train_begin, [&](const CallbackContext& at, TrainerControl&) {
      sizes.push_back(*at.state.train_batch_size);
    });
    trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
      if (*at.state.train_batch_size >= limit) throw std::runtime_error("CUDA out of memory.");
    });
    EXPECT_EQ(trainer.train().global_step, 2);
    EXPECT_EQ(read_json(box.run() / "checkpoint-2/trainer_state.json").at("train_batch_size"),
              sizes.back());
    return sizes;
  };
  EXPECT_EQ(sizes_tried(16, 16, true), (std::vector<int64_t>{16, 14}));
  EXPECT_EQ(sizes_tried(64, 16, true),
            (std::vector<int64_t>{64, 57, 51, 45, 40, 36, 32, 28, 25, 22, 19, 17,
                                  15}));  // TestExecutableBatchSize
  EXPECT_EQ(sizes_tried(64, 100, false), std::vector<int64_t>{64});
}

TEST(Checkpointing, TestAutoBatchSizeFinderErrors) {
  Box box;
  const auto fail_with = [&](const char* text, bool search) {
    Trainer trainer(regression(
        box, {.per_device_train_batch_size = 3, .max_steps = 2, .auto_find_batch_size = search}));
    trainer.on(Event::step_end,
               [&](const CallbackContext&, TrainerControl&) { throw std::runtime_error(text); });
    try {
      trainer.train();
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(fail_with("CUDA out of memory.", true).find("no executable batch size found"),
            std::string::npos);
  if (on_gpu())
    EXPECT_NE(fail_with("CUDA out of memory.", false).find("(CUDA out of memory.) [G-GPU-1]"),
              std::string::npos);
  else
    EXPECT_EQ(fail_with("CUDA out of memory.", false), "CUDA out of memory.");
  EXPECT_EQ(fail_with("something else", true), "something else");
}

TEST(Checkpointing, AutoBatchSizeFinderDoesNotAnswerAnEvaluationThatRanOutOfMemory) {
  Box box;
  Trainer trainer(regression(box, {.per_device_train_batch_size = 8,
                                   .max_steps = 2,
                                   .auto_find_batch_size = true,
                                   .eval_strategy = "steps",
                                   .eval_steps = 1,
                                   .per_device_eval_batch_size = 32}));
  int runs = 0;
  trainer.on(Event::train_begin, [&](const CallbackContext&, TrainerControl&) { ++runs; });
  trainer.on(Event::prediction_step, [](const CallbackContext&, TrainerControl&) {
    throw std::runtime_error("CUDA out of memory.");
  });
  const auto error = error_of([&] { trainer.train(); });
  EXPECT_EQ(error.id(), "G-TRAIN-21");
  EXPECT_EQ(error.message(),
            "memory ran out in an evaluation with batches of 32; auto_find_batch_size changes only "
            "the training batch size");
  EXPECT_NE(error.advice().find("--per_device_eval_batch_size"), std::string::npos);
  EXPECT_EQ(runs, 1) << "training does not start again";
  EXPECT_EQ(trainer.state().train_batch_size, 8);
}

TEST(Checkpointing, TestLoadBestModelAtEnd) {
  struct Case {
    const char* strategy;
    const char* metric;
    bool greater;
    const char* save;
  };
  for (const auto& each :
       {Case{"steps", "loss", false, "steps"}, Case{"steps", "accuracy", true, "steps"},
        Case{"epoch", "accuracy", true, "epoch"}, Case{"steps", "loss", false, "best"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", each.strategy, each.metric, each.save));
    Box box;
    // 1.5, 2.5 is left at a rate that overshoots, so that the last model is not the best.
    auto options = regression(box,
                              {.learning_rate = 0.9,
                               .lr_scheduler_type = "constant",
                               .eval_strategy = each.strategy,
                               .eval_steps = 5,
                               .save_strategy = each.save,
                               .save_steps = 5,
                               .load_best_model_at_end = true,
                               .metric_for_best_model = each.metric,
                               .greater_is_better = each.greater},
                              1.5, 2.5);
    options.compute_metrics = almost_accuracy;
    Trainer trainer(std::move(options));
    trainer.train();
    const auto key = std::string("eval_") + each.metric;
    double best = each.greater ? -INFINITY : INFINITY;
    int64_t best_step = 0;
    for (const auto& entry : trainer.state().log_history) {
      if (!entry.contains(key)) continue;
      const double value = entry[key];
      if (each.greater ? value > best : value < best) best = value, best_step = entry["step"];
    }
    EXPECT_EQ(trainer.state().best_global_step, best_step);
    EXPECT_EQ(trainer.state().best_model_checkpoint,
              (box.run() / fmt::format("checkpoint-{}", best_step)).string());
    EXPECT_EQ(weights(trainer), saved_weights(*trainer.state().best_model_checkpoint));
    EXPECT_EQ(trainer.evaluate().at(key), best) << "the best value exactly";
  }
}

TEST(Checkpointing, TestLoadBestModelWithSave) {
  Box box;
  Trainer(regression(box, {.output_dir = box.dir("nine"), .max_steps = 9, .save_steps = 5}))
      .train();
  EXPECT_EQ(steps_saved(box.run("nine")), (std::vector<int64_t>{5, 9}));
  Trainer trainer(regression(box, {.max_steps = 11,
                                   .learning_rate = 0.1,
                                   .eval_strategy = "steps",
                                   .eval_steps = 5,
                                   .save_steps = 5,
                                   .save_total_limit = 2,
                                   .load_best_model_at_end = true}));
  trainer.train();
  EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{10, 11}));
  EXPECT_EQ(weights(trainer), saved_weights(*trainer.state().best_model_checkpoint));
}

/// Makes evaluations give the values of a list, one after the other.
struct Scripted : Trainer {
  Scripted(TrainerOptions options, std::string key, std::vector<double> values)
      : Trainer(std::move(options)), key(std::move(key)), values(std::move(values)) {}
  EvalLoopOutput evaluation_loop(const DataLoader& loader, const std::string& description,
                                 std::optional<bool> loss_only, std::optional<Names> ignored,
                                 const std::string& prefix) override {
    auto output =
        Trainer::evaluation_loop(loader, description, loss_only, std::move(ignored), prefix);
    output.metrics[key] = values.at(next++);
    return output;
  }
  std::string key;
  std::vector<double> values;
  size_t next = 0;
};

TEST(Checkpointing, TestSaveBestCheckpoint) {
  Box box;
  const TrainingArguments by_accuracy{.num_train_epochs = 3,
                                      .eval_strategy = "epoch",
                                      .save_strategy = "best",
                                      .metric_for_best_model = "accuracy"};
  Scripted first(regression(box, by_accuracy), "eval_accuracy", {0.60, 0.65, 0.64});
  first.train();
  EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(first.state().best_metric, 0.65);
  auto by_loss = by_accuracy;
  by_loss.output_dir = box.dir("loss");
  by_loss.metric_for_best_model = "loss";
  Scripted second(regression(box, by_loss), "eval_loss", {0.03, 0.02, 0.03});
  second.train();
  EXPECT_EQ(steps_saved(box.run("loss")), (std::vector<int64_t>{8, 16}));
}

TEST(Checkpointing, TestMetricForBestModelBehavior) {
  Box box;
  const auto error = error_of([&] {
    Trainer trainer(
        regression(box, {.eval_strategy = "steps", .eval_steps = 5, .save_strategy = "best"}));
  });
  EXPECT_NE(error.message().find("metric_for_best_model must be provided"), std::string::npos)
      << error.message();
  Trainer trainer(regression(box, {.eval_strategy = "steps",
                                   .eval_steps = 5,
                                   .save_steps = 5,
                                   .load_best_model_at_end = true}));
  EXPECT_EQ(trainer.args().metric_for_best_model, "loss");
  auto options =
      regression(box, {.eval_strategy = "steps", .eval_steps = 5, .metric_for_best_model = "f1"});
  const auto missing = error_of([&] { Trainer(std::move(options)).train(); });
  EXPECT_EQ(missing.id(), "G-TRAIN-13");
  EXPECT_NE(missing.message().find("metric_for_best_model is 'eval_f1', which the evaluation did "
                                   "not return; it returned: epoch, eval_loss, eval_runtime"),
            std::string::npos)
      << missing.message();
}

TEST(Checkpointing, OnlyTheBestStaysWithALimitOfOne) {
  Box box;
  Scripted trainer(regression(box, {.num_train_epochs = 3,
                                    .eval_strategy = "epoch",
                                    .save_strategy = "epoch",
                                    .save_total_limit = 1,
                                    .load_best_model_at_end = true}),
                   "eval_loss", {0.03, 0.02, 0.04});
  std::vector<std::vector<int64_t>> seen;
  trainer.on(Event::epoch_begin, [&](const CallbackContext&, TrainerControl&) {
    trainer.wait_for_saves(), seen.push_back(steps_saved(box.run()));
  });
  trainer.train();
  EXPECT_EQ(seen, (std::vector<std::vector<int64_t>>{{}, {8}, {16}}));
  EXPECT_EQ(steps_saved(box.run()), std::vector<int64_t>{16});
}

TEST(Checkpointing, SaveModelAndStateAndMetrics) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 2, .save_strategy = "no"}));
  trainer.train();
  trainer.save_model();
  trainer.save_state();
  trainer.save_metrics("train", {{"train_loss", 0.5}, {"train_samples", 64}});
  trainer.save_metrics("eval", {{"eval_loss", 0.25}});
  EXPECT_EQ(saved_weights(box.run()), weights(trainer));
  EXPECT_EQ(read_file(box.run() / "train_results.json"),
            "{\n    \"train_loss\": 0.5,\n    \"train_samples\": 64\n}");
  EXPECT_EQ(read_json(box.run() / "all_results.json").size(), 3U);
  const auto state = read_json(box.run() / "trainer_state.json");
  EXPECT_EQ(state.at("global_step"), 2);
  EXPECT_TRUE(state.at("stateful_callbacks").contains("TrainerControl"))
      << "also before the first checkpoint";
  box->printed.clear();
  trainer.log_metrics("train", {{"train_loss", 0.123456},
                                {"train_runtime", 3723.456},
                                {"train_mem_cpu_alloc_delta", 3 << 20},
                                {"total_flos", double(5LL << 30)}});
  EXPECT_EQ(box->printed,
            "***** train metrics *****\n  total_flos                =        5GF\n  train_loss     "
            "           =     0.1235\n  train_mem_cpu_alloc_delta =        3MB\n  train_runtime    "
            "         = 1:02:03.45\n");
  box->printed.clear();
  trainer.log_metrics("eval", {{"eval_runtime", 90061.5}});
  EXPECT_EQ(box->printed, "***** eval metrics *****\n  eval_runtime = 1 day, 1:01:01.50\n");
}

}  // namespace
}  // namespace gradus::testing
