// What a Trainer refuses, and what it leaves behind when a run fails.
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/optim/optimizer.h>
#include <gradus/train/plan.h>
#include <signal.h>

#include <limits>

#include "regression.h"

namespace gradus::testing {
namespace {

/// Throws what it was made with at one event, and keeps the reason that on_train_end is told.
template <class Thrown>
struct Failing : TrainerCallback {
  Failing(int64_t at_step, Thrown what) : step(at_step), thrown(what) {}
  std::string name() const override { return "Failing"; }
  void on_save(const TrainingArguments&, TrainerState& state, TrainerControl&,
               const CallbackContext&) override {
    if (state.global_step == step) throw thrown;
  }
  void on_train_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                    const CallbackContext& at) override {
    reason = at.exception;
  }
  int64_t step;
  Thrown thrown;
  std::string reason;
};

template <class T>
struct Counting : TrainerCallback {};

TEST(Failure, WhatWasBeingSavedIsOnDiskAndTheTrainerGoesOnFromIt) {
  Box box;
  Trainer whole(
      regression(box, {.output_dir = box.dir("whole"), .learning_rate = 0.1, .save_steps = 5}));
  whole.train();

  Trainer trainer(regression(box, {.learning_rate = 0.1, .save_steps = 5}));
  const auto failing = std::make_shared<Failing<std::runtime_error>>(
      10, std::runtime_error("the disk of the callback is full"));
  trainer.add_callback(failing);
  EXPECT_THROW(trainer.train(), std::runtime_error);
  EXPECT_EQ(steps_saved(box.run()), (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(failing->reason, "the disk of the callback is full");
  EXPECT_FALSE(trainer.is_in_train());

  failing->step = -1;
  EXPECT_EQ(trainer.train(Resume::last()).global_step, 24);
  EXPECT_EQ(failing->reason, "");
  EXPECT_EQ(weights(trainer), weights(whole));
  EXPECT_EQ(trainer.state().total_flos, whole.state().total_flos);
}

TEST(Failure, AnExceptionOfAnyTypeEndsTheRun) {
  Box box;
  Trainer trainer(regression(box, {.save_steps = 5}));
  const auto failing = std::make_shared<Failing<int>>(5, 7);
  trainer.add_callback(failing);
  EXPECT_THROW(trainer.train(), int);
  EXPECT_EQ(failing->reason, "an exception that is not a std::exception");
  EXPECT_FALSE(trainer.is_in_train());
}

TEST(Failure, TheFirstExceptionIsTheOneThatIsThrown) {
  Box box;
  Trainer trainer(regression(box));
  trainer.on(Event::step_end, [](const CallbackContext&, TrainerControl&) {
    throw std::runtime_error("the first");
  });
  trainer.on(Event::train_end, [](const CallbackContext&, TrainerControl&) {
    throw std::runtime_error("the second");
  });
  try {
    trainer.train();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the first");
  }
  EXPECT_EQ(box->heard("the second"), 1);
}

TEST(Failure, ARunThatCannotBeginLeavesTheTrainerAsItWas) {
  Box box;
  Trainer trainer(regression(box));
  EXPECT_EQ(error_of([&] { trainer.train(Resume::newest()); }).id(), "G-CKPT-1");
  EXPECT_FALSE(trainer.is_in_train());
  EXPECT_EQ(trainer.train().global_step, 24);
}

TEST(Failure, AModelInitIsEmptyWhenItsFunctionIs) {
  using Make = std::shared_ptr<Model>();
  EXPECT_FALSE(ModelInit());
  EXPECT_FALSE(ModelInit(std::function<Make>()));
  EXPECT_FALSE(ModelInit(static_cast<Make*>(nullptr)));
  EXPECT_TRUE(ModelInit([]() -> std::shared_ptr<Model> { return nullptr; }));
}

TEST(Failure, AModelInitMayGiveNoneLater) {
  Box box;
  auto options = regression(box);
  options.model = nullptr;
  int calls = 0;
  options.model_init = [&]() -> std::shared_ptr<Model> {
    return ++calls == 1 ? std::make_shared<RegressionModel>() : nullptr;
  };
  Trainer trainer(std::move(options));
  EXPECT_EQ(error_of([&] { trainer.train(); }).id(), "G-TRAIN-8");
  EXPECT_TRUE(trainer.evaluate().contains("eval_loss"));
}

TEST(Failure, PartsThatAUserMakesMayBeMissing) {
  Box box;
  auto options = regression(box);
  options.eval_dataset = {{"good", RegressionData(8).rows}, {"bad", nullptr}};
  EXPECT_EQ(error_of([&] { Trainer(options).evaluate(); }).message(),
            "evaluate(): the eval_dataset 'bad' is a null pointer");

  options = regression(box);
  options.optimizer_factory = [](std::vector<ParamGroupInit>, const TrainingArguments&) {
    return nullptr;
  };
  EXPECT_EQ(error_of([&] { Trainer(options).train(); }).id(), "G-TRAIN-5");

  struct NoSchedule : Trainer {
    using Trainer::Trainer;
    void create_scheduler(int64_t) override {}
  };
  EXPECT_EQ(error_of([&] { NoSchedule(regression(box)).train(); }).message(),
            "create_optimizer_and_scheduler made no schedule");

  options = regression(box);
  options.compute_loss_func = [](const ModelOutput&, const torch::Tensor&,
                                 const std::optional<torch::Tensor>&) { return torch::Tensor(); };
  EXPECT_EQ(error_of([&] { Trainer(options).evaluate(); }).id(), "G-TRAIN-7");
}

TEST(Failure, ASavedModelIsNotHiddenByAnEarlierOneCutDifferently) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 2, .save_strategy = "no"}));
  const auto saved = [&] {
    std::map<std::string, float> found;
    for (const auto& [name, tensor] : read_weights_folder(box.run()))
      found[name] = tensor.item<float>();
    return std::pair(found.at("a"), found.at("b"));
  };
  trainer.save_model();
  trainer.train();
  trainer.args().max_shard_size = "4";  // a tensor each
  trainer.save_model();
  EXPECT_EQ(saved(), weights(trainer));
  EXPECT_FALSE(fs::exists(box.run() / "model.safetensors"));
  trainer.args().max_shard_size = "1GB";
  trainer.save_model();
  EXPECT_EQ(saved(), weights(trainer));
  EXPECT_FALSE(fs::exists(box.run() / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(box.run() / "model-00001-of-00002.safetensors"));
}

TEST(Failure, AStateOfALaterVersionIsRefused) {
  Box box;
  Trainer(regression(box, {.save_steps = 10})).train();
  const auto checkpoint = box.run() / "checkpoint-10";
  auto state = read_json(checkpoint / "gradus_state.json");
  state["version"] = 2;
  write_file_atomically(checkpoint / "gradus_state.json", dump_json(state));
  auto manifest = Manifest::read(checkpoint / "manifest.json");
  manifest.files["gradus_state.json"] = file_checksum(checkpoint / "gradus_state.json");
  write_file_atomically(checkpoint / "manifest.json", manifest.to_text());
  const auto error = error_of([&] { Trainer(regression(box)).train(Resume::from(checkpoint)); });
  EXPECT_EQ(error.id(), "G-CKPT-5");
  EXPECT_NE(error.message().find("its version is 2, this gradus knows 1 and below"),
            std::string::npos)
      << error.message();
}

TEST(Failure, CallbacksThatCannotWorkAreRefused) {
  Box box;
  Trainer trainer(regression(box));
  EXPECT_EQ(error_of([&] {
              trainer.on(Event::log, Every{.n = 0}, [](const CallbackContext&, TrainerControl&) {});
            }).id(),
            "G-TRAIN-1");
  const auto error = error_of([&] { trainer.on(Event::log, nullptr); });
  EXPECT_EQ(error.id(), "G-TRAIN-9");
  EXPECT_EQ(error.message(), "a function for on_log was expected, an empty one received");
  EXPECT_EQ(error_of([] { InterruptCallback({SIGTERM, 4096}); }).id(), "G-TRAIN-18");
  EXPECT_EQ(error_of([] { InterruptCallback({SIGKILL}); }).id(), "G-TRAIN-18");
  EXPECT_EQ(error_of([&] { EmaCallback(0.9).swap(trainer.model()); }).message(),
            "EmaCallback::swap: the model has 2 trained tensors, the average 0");
}

TEST(Callbacks, TheNameOfATemplateIsItsOwn) {
  struct Plain : TrainerCallback {};
  EXPECT_EQ(Plain().name(), "Plain");
  EXPECT_EQ(Counting<std::string>().name().substr(0, 9), "Counting<");
}

TEST(Callbacks, PoppingByTypeTakesOne) {
  Box box;
  Trainer trainer(regression(box));
  const auto twice = std::make_shared<EmaCallback>();
  trainer.add_callback(twice);
  trainer.add_callback(std::make_shared<ThroughputCallback>());
  const auto before = trainer.callbacks().size();
  EXPECT_EQ(trainer.pop_callback<EmaCallback>(), twice);
  EXPECT_EQ(trainer.callbacks().size(), before - 1);
  EXPECT_EQ(trainer.pop_callback<EmaCallback>(), nullptr);
  EXPECT_NE(trainer.pop_callback<ThroughputCallback>(), nullptr);
}

TEST(Failure, OutputsThatDifferFromBatchToBatchAreNamed) {
  EvalAccumulator accumulator;
  accumulator.add({torch::ones({2}), torch::ones({2})});
  accumulator.add({torch::ones({2})});
  const auto error = error_of([&] { accumulator.join(); });
  EXPECT_EQ(error.id(), "G-TRAIN-17");
  EXPECT_EQ(
      error.message(),
      "the batches of the evaluation cannot be joined: batch 1 gave 1 tensors, the first one 2");
}

TEST(TrainingPlan, ForeverIsANumberOfSteps) {
  constexpr auto kForever = std::numeric_limits<int64_t>::max();
  TrainingArguments args;
  args.max_steps = kForever;
  args.gradient_accumulation_steps = 4;
  const auto sized =
      plan_training(args, DataLoader({.dataset = RegressionData(64).rows, .batch_size = 8}), 8);
  EXPECT_EQ(sized.max_steps, kForever);
  EXPECT_EQ(sized.num_train_epochs, kForever / 2 + 1);
  EXPECT_GT(sized.num_train_samples, 1e20);
  struct Endless : BatchSource {
    std::optional<Batch> next() override { return Batch{{"x", torch::ones({1})}}; }
    void reset(int64_t) override {}
  };
  const auto endless = plan_training(args, DataLoader(std::make_shared<Endless>()), 8);
  EXPECT_EQ(endless.steps_in_epoch, kForever);
  EXPECT_EQ(endless.num_examples, kForever);
  args.max_steps = -1;
  args.num_train_epochs = 1e30;
  EXPECT_EQ(
      plan_training(args, DataLoader({.dataset = RegressionData(64).rows, .batch_size = 8}), 8)
          .max_steps,
      kForever);
}

}  // namespace
}  // namespace gradus::testing
