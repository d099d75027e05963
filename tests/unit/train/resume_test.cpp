// Going on with a run: what it says, where it begins, and what it notices.
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/data/streams.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/safetensors.h>
#include <signal.h>

#include "regression.h"
#include "train/data_fingerprint.h"

namespace gradus::testing {
namespace {

/// A run of 3 passes of 7 steps.
TrainingArguments seven_steps() {
  return {
      .per_device_train_batch_size = 8, .learning_rate = 0.1, .logging_steps = 1, .save_steps = 1};
}

std::vector<json> logs_of(const Trainer& trainer) { return timeless(trainer.state().log_history); }

void replace_state(const fs::path& checkpoint, const std::function<void(json&)>& change) {
  const auto file = checkpoint / "gradus_state.json";
  auto state = read_json(file);
  change(state);
  write_file_atomically(file, dump_json(state, 2));
  auto manifest = Manifest::read(checkpoint / "manifest.json");
  manifest.files["gradus_state.json"] = file_checksum(file);
  write_file_atomically(checkpoint / "manifest.json", manifest.to_text());
}

// Expected as transformers does it (tests/differential/resume_test.py, ignored_data): a pass whose
// last step is done is not trained again. No data is left to skip there, so the run is bit-equal.
TEST(Resuming, IgnoreDataSkipAfterAPassBeginsTheNext) {
  Box box;
  Trainer whole(regression(box, seven_steps(), 0, 0, /*train_len=*/56));
  whole.train();
  for (const int64_t step : {7, 14, 21}) {
    auto args = seven_steps();
    args.ignore_data_skip = true;
    args.save_strategy = "no";
    Trainer resumed(regression(box, args, 0, 0, 56));
    std::vector<double> epochs;
    resumed.on(Event::epoch_begin, [&](const CallbackContext& at, TrainerControl&) {
      epochs.push_back(at.state.epoch);
    });
    resumed.train(Resume::from(box.run() / fmt::format("checkpoint-{}", step)));
    EXPECT_EQ(weights(resumed), weights(whole)) << "from step " << step;
    EXPECT_EQ(logs_of(resumed), logs_of(whole)) << "from step " << step;
    EXPECT_EQ(epochs.size(), size_t(3 - step / 7)) << "from step " << step;
  }
}

/// Its outputs depend on how often it was called.
struct Counting : RegressionModel {
  ModelOutput forward(const Batch& inputs, const ForwardOptions& options) override {
    auto output = RegressionModel::forward(inputs, options);
    output.set("loss", output.loss() * double(++calls));
    return output;
  }
  json memory() const override { return {{"calls", calls}}; }
  void load_memory(const json& memory) override { calls = memory.at("calls"); }
  int64_t calls = 0;
};

TEST(Resuming, AModelRemembers) {
  Box box;
  auto options = regression(box, seven_steps(), 0, 0, 56);
  options.model = std::make_shared<Counting>();
  Trainer whole(options);
  whole.train();
  options.model = std::make_shared<Counting>();
  options.args.save_strategy = "no";
  Trainer resumed(options);
  resumed.train(Resume::from(box.run() / "checkpoint-10"));
  EXPECT_EQ(weights(resumed), weights(whole));
  EXPECT_EQ(logs_of(resumed), logs_of(whole));
}

TEST(Resuming, IgnoreDataSkipInsideAPassBeginsItAnew) {
  Box box;
  Trainer(regression(box, seven_steps(), 0, 0, 56)).train();
  auto args = seven_steps();
  args.ignore_data_skip = true;
  Trainer resumed(regression(box, args, 0, 0, 56));
  resumed.train(Resume::from(box.run() / "checkpoint-10"));
  const auto& logs = resumed.state().log_history;
  EXPECT_NEAR(logs.at(10).at("epoch").get<double>(), 1 + 1.0 / 7, 1e-9);
  EXPECT_NEAR(logs.at(20).at("epoch").get<double>(), 2 + 4.0 / 7, 1e-9) << "it ends by its steps";
}

// docs/differences.md: the end of the pass still follows.
TEST(Resuming, APassThatHadNotEndedIsEndedOnce) {
  Box box;
  Trainer(regression(box, seven_steps(), 0, 0, 56)).train();
  const auto events_after = [&](bool ignore_data_skip) {
    auto args = seven_steps();
    args.ignore_data_skip = ignore_data_skip;
    args.save_strategy = "no";
    Trainer resumed(regression(box, args, 0, 0, 56));
    std::string events;
    resumed.on(Event::epoch_begin, [&](auto&&...) { events += "["; });
    resumed.on(Event::step_end, [&](auto&&...) { events += "."; });
    resumed.on(Event::epoch_end, [&](auto&&...) { events += "]"; });
    resumed.train(Resume::from(box.run() / "checkpoint-14"));
    return events;
  };
  EXPECT_EQ(events_after(false), "[][.......]");
  EXPECT_EQ(events_after(true), "[.......]");
}

TEST(Resuming, TestResumeOfAFinishedRunDoesNothing) {
  Box box;
  Trainer whole(regression(box, {.max_steps = 10, .learning_rate = 0.1, .save_steps = 5}));
  whole.train();
  Trainer again(regression(box, {.max_steps = 10, .learning_rate = 0.1, .save_steps = 5}));
  EXPECT_EQ(again.train(Resume::last()).global_step, 10);
  EXPECT_EQ(weights(again), weights(whole));
  EXPECT_EQ(box->heard("The run had ended at step 10: nothing is left to train."), 1);
}

TEST(Resuming, TestResumeWithALongerRunGoesOn) {
  Box box;
  Trainer(regression(box, {.max_steps = 10, .save_steps = 5})).train();
  Trainer longer(regression(box, {.max_steps = 14, .save_steps = 5}));
  EXPECT_EQ(longer.train(Resume::last()).global_step, 14);
}

TEST(Resuming, SaysOnceWhereItGoesOn) {
  Box box;
  const TrainingArguments args{.max_steps = 20, .save_steps = 6};
  Trainer(regression(box, args)).train(Resume::last());
  EXPECT_EQ(box->printed.find("Continuing"), std::string::npos) << "a fresh start";
  box->printed.clear();
  const auto checkpoint = box.run() / "checkpoint-6";
  Trainer(regression(box, args)).train(Resume::from(checkpoint));
  const auto line =
      fmt::format("Continuing from {}: step 6 of 20, epoch 0.75\n", checkpoint.string());
  const auto at = box->printed.find(line);
  EXPECT_NE(at, std::string::npos) << box->printed;
  EXPECT_EQ(box->printed.find("Continuing", at + 1), std::string::npos) << "once";

  box->printed.clear();
  auto quiet = args;
  quiet.log_level = "error";
  Trainer(regression(box, quiet)).train(Resume::from(checkpoint));
  EXPECT_EQ(box->printed.find("Continuing"), std::string::npos) << "not above the default level";
}

TEST(Resuming, WarnsOfOtherTrainingData) {
  Box box;
  const TrainingArguments args{.max_steps = 8, .save_steps = 4};
  Trainer(regression(box, args)).train();
  const auto warnings_with = [&](const DatasetRef& data) {
    box->messages.clear();
    auto options = regression(box, {.max_steps = 8, .save_strategy = "no"});
    if (data) options.train_dataset = data;
    Trainer(std::move(options)).train(Resume::from(box.run() / "checkpoint-4"));
    std::string heard;
    for (const auto& line : box->messages)
      if (line.find("training data") != std::string::npos) heard += line;
    return heard;
  };
  const RegressionData same;
  EXPECT_EQ(warnings_with(same.rows), "");
  EXPECT_EQ(
      warnings_with(RegressionData(80).rows),
      "The training data differs from that of the checkpoint: it has 80 rows, before it had 64. "
      "The run continues with the new data.");
  EXPECT_NE(warnings_with(from_tensors({{"labels", same.ys[0]}, {"input_x", same.x + 1}}))
                .find("its rows have other values or another order"),
            std::string::npos);
  EXPECT_NE(
      warnings_with(from_tensors({{"labels", same.ys[0].flip(0)}, {"input_x", same.x.flip(0)}}))
          .find("its rows have other values or another order"),
      std::string::npos);
  EXPECT_NE(
      warnings_with(from_tensors({{"labels", same.ys[0]}, {"input_x", same.x}, {"more", same.x}}))
          .find("its columns are [\"labels\", \"input_x\", \"more\"]"),
      std::string::npos);
  replace_state(box.run() / "checkpoint-4", [](json& state) { state.erase("data"); });
  EXPECT_EQ(warnings_with(RegressionData(80).rows), "") << "an older checkpoint does not know";
}

/// Rows that come out different each time.
struct RandomRows : Dataset {
  int64_t size() const override { return 16; }
  Example get(int64_t) const override {
    return {{"input_x", torch::rand({})}, {"labels", torch::rand({})}};
  }
};

TEST(DataFingerprint, HasWhatCanBeHad) {
  const RegressionData data;
  const auto whole = data_fingerprint(data.rows);
  EXPECT_EQ(whole.at("rows"), 64);
  EXPECT_EQ(whole.at("columns"), (json{"labels", "input_x"}));
  EXPECT_TRUE(whole.at("checksum").is_string());
  EXPECT_EQ(data_fingerprint(data.rows), whole);

  const auto before = device::get_cpu_rng_state().clone();
  EXPECT_TRUE(data_fingerprint(std::make_shared<RandomRows>()).at("checksum").is_null());
  EXPECT_TRUE(device::get_cpu_rng_state().equal(before)) << "the run's random numbers are kept";

  const auto stream = data_fingerprint(as_stream(data.rows));
  EXPECT_TRUE(stream.at("checksum").is_null());
  EXPECT_EQ(data_difference(stream, whole), "")
      << "what one of them does not know is no difference";
  EXPECT_TRUE(data_fingerprint(nullptr).is_null());
  EXPECT_EQ(data_difference(nullptr, whole), "");
}

TEST(Resuming, ASignalSavesAndTheNextStartGoesOn) {
  Box box;
  const TrainingArguments args{.learning_rate = 0.1, .save_strategy = "no"};
  Trainer whole(regression(box, args));
  whole.train();
  Trainer stopped(regression(box, args));
  stopped.add_callback(std::make_shared<InterruptCallback>());
  stopped.on(Event::step_begin, [](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step == 9) ::raise(SIGINT);
  });
  EXPECT_EQ(stopped.train(Resume::last()).global_step, 10);
  const auto checkpoint = box.run() / "checkpoint-10";
  EXPECT_NE(box->printed.find("Stopped by a signal at step 10 of 24, epoch 1.25. The run is saved "
                              "as " +
                              checkpoint.string() + "\n"),
            std::string::npos)
      << box->printed;
  Trainer again(regression(box, args));
  EXPECT_EQ(again.train(Resume::last()).global_step, 24);
  EXPECT_NE(box->printed.find("Continuing from " + checkpoint.string() + ": step 10 of 24"),
            std::string::npos);
  EXPECT_EQ(weights(again), weights(whole));
}

/// Trains `a`; `b` is the frozen base, which its folder does not hold.
struct AdapterModel : RegressionModel {
  SavedWeights saved_weights() const override {
    SavedWeights saved;
    saved.stem = "adapter_model";
    saved.tensors.insert("a", a.detach());
    return saved;
  }
  void load_saved_weights(const StateDict& saved) override {
    const torch::NoGradGuard no_grad;
    a.copy_(saved["a"]);
  }
};

TEST(Resuming, AModelMaySaveOnlyAnAdapter) {
  Box box;
  const auto make = [&] {
    auto options = regression(box, {.max_steps = 8, .learning_rate = 0.1, .save_steps = 4});
    options.model = std::make_shared<AdapterModel>();
    static_cast<AdapterModel&>(*options.model).b.requires_grad_(false);
    return std::make_unique<Trainer>(std::move(options));
  };
  auto whole = make();
  whole->train();
  whole->save_model();
  for (const auto& folder : {box.run(), box.run() / "checkpoint-4"}) {
    EXPECT_TRUE(fs::exists(folder / "adapter_model.safetensors")) << folder;
    EXPECT_FALSE(fs::exists(folder / "model.safetensors")) << folder;
    EXPECT_TRUE(fs::exists(folder / "training_args.json")) << folder;
  }
  auto resumed = make();
  resumed->train(Resume::from(box.run() / "checkpoint-4"));
  EXPECT_EQ(weights(*resumed), weights(*whole));
}

}  // namespace
}  // namespace gradus::testing
