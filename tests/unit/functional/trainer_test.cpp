#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/functional/trainer.h>
#include <gradus/trackers/jsonl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <sstream>

#include "../error_of.h"

namespace gradus::functional {
namespace {

namespace fs = std::filesystem;

/// Linear with dropout in front, so that keys matter.
struct NoisyImpl : torch::nn::Module {
  NoisyImpl() {
    register_module("fc", fc);
    register_module("dropout", dropout);
  }
  torch::nn::Linear fc{4, 1};
  torch::nn::Dropout dropout{0.1};
};
TORCH_MODULE(Noisy);

class FunctionalTrainer : public ::testing::Test {
 protected:
  FunctionalTrainer() {
    fs::remove_all(folder_);
    torch::manual_seed(4);
    const auto x = torch::randn({70, 4});
    data_ = from_tensors({{"x", x}, {"y", x.sum(1, true)}});
    model_ = wrap(Noisy(), [](NoisyImpl& net, const Batch& batch) {
      return net.fc->forward(net.dropout->forward(batch["x"]));
    });
  }
  ~FunctionalTrainer() override { fs::remove_all(folder_); }

  Args args() const {
    return {.logging_steps = 3,
            .save_steps = 5,
            .batch_size_per_device = 8,
            .max_epochs = 3,
            .lr = 0.1,
            .warmup_steps = 4,
            .weight_decay = 0.01,
            .save_dir = (folder_ / "run").string()};
  }
  TrainerOptions options() const {
    return {.args = args(), .logger = jsonl_logger(folder_ / "log.jsonl"), .show_progress = false};
  }
  CreateStateOptions create(std::optional<fs::path> checkpoint = {}) const {
    return {.loss_fn = [](const torch::Tensor& prediction,
                          const Batch& batch) { return at::mse_loss(prediction, batch["y"]); },
            .ckpt_dir = std::move(checkpoint)};
  }
  static constexpr int64_t kSteps = 24;  // 3 epochs of 8 full batches

  fs::path folder_ = fs::temp_directory_path() /
                     ("gradus-functional-" +
                      std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::shared_ptr<Dataset> data_;
  ModelFunction model_;
};

std::string bytes_of(const TrainState& state) {
  return flax_msgpack_bytes(to_flax(state.params)) + flax_msgpack_bytes(to_flax(state.opt_state));
}

TEST_F(FunctionalTrainer, AStateOfTheUsersOwnStepsIsTrainedOn) {
  Trainer trainer(options());
  auto state = trainer.create_state(model_, {}, kSteps, create());
  const auto first = data_->select({0, 1, 2, 3, 4, 5, 6, 7})
                         ->get_batch(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  state = train_step(state, state.key, *first).state;  // no running loss yet
  EXPECT_EQ(trainer.train(state, data_, data_).step, kSteps);
  EXPECT_EQ(message_of("G-FN-2", [&] { trainer.train(TrainState(), data_, data_); }),
            "the state to train has no parameters");
}

TEST_F(FunctionalTrainer, SizesOfACheckpointAreChecked) {
  Trainer trainer(options());
  trainer.save_checkpoint(folder_ / "saved", trainer.create_state(model_, {}, kSteps, create()));
  auto args = read_json(folder_ / "saved" / "args.json");
  args["logging_steps"] = 0;
  write_file_atomically(folder_ / "saved" / "args.json", dump_json(args));
  EXPECT_EQ(
      message_of("G-FN-2",
                 [&] { trainer.create_state(model_, {}, kSteps, create(folder_ / "saved")); }),
      (folder_ / "saved" / "args.json").string() + ": logging_steps is 0, expected 1 or more");
}

TEST_F(FunctionalTrainer, LogsAndSavesAsTheReference) {
  Trainer trainer(options());
  const auto state =
      trainer.train(trainer.create_state(model_, {}, kSteps, create()), data_, data_);
  EXPECT_EQ(state.step, kSteps);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"log.jsonl", "run-e0-s5", "run-e1-s5", "run-e2-s5"}));
  names.clear();
  for (const auto& entry : fs::directory_iterator(folder_ / "run-e1-s5"))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names,
            (std::vector<std::string>{"args.json", "data_collator.json", "flax_model.msgpack",
                                      "opt_state.msgpack", "training_state.json"}));
  EXPECT_EQ(read_json(folder_ / "run-e1-s5/training_state.json").at("step"), 13);

  std::istringstream lines(read_file(folder_ / "log.jsonl"));
  std::vector<nlohmann::json> logs;
  for (std::string line; std::getline(lines, line);) logs.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(logs.size(), 6u);
  const auto schedule = warmup_then_decay(args(), kSteps);
  const int64_t steps[] = {3, 6, 11, 14, 19, 22};  // counted anew in every epoch
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(logs[i].at("step"), steps[i]);
    EXPECT_DOUBLE_EQ(logs[i].at("lr").get<double>(), schedule(steps[i] - 1));
    EXPECT_TRUE(logs[i].contains("tr_loss") && logs[i].contains("eval_loss"));
  }
  EXPECT_LT(trainer.evaluate(state, data_), 1.0);
}

TEST_F(FunctionalTrainer, TakesTheReferencesOrderAndDropsTheRest) {
  auto options = this->options();
  std::vector<torch::Tensor> seen;
  options.args.max_epochs = 1;
  options.args.logging_steps = options.args.save_steps = 1000;
  options.train_step_fn = [&](const TrainState& state, Key key, const Batch& batch) {
    seen.push_back(batch["x"]);
    return train_step(state, key, batch);
  };
  Trainer trainer(options);
  trainer.train(trainer.create_state(model_, sgd(0.0), 8, create()), data_, data_);
  ASSERT_EQ(seen.size(), 8u);
  // numpy.random.default_rng(0).permutation(70)[:8]
  const int64_t order[] = {27, 60, 36, 46, 44, 4, 8, 34};
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_TRUE(at::equal(seen[0][i], data_->get(order[i])["x"].tensor())) << i;
}

TEST_F(FunctionalTrainer, StoppedAndRestoredIsBitEqual) {
  const auto tx = chain(clip_by_global_norm(0.5), build_tx(args(), kSteps));
  Trainer whole(options());
  const auto begin = whole.create_state(model_, tx, kSteps, create());
  const auto expected = whole.train(begin, data_, data_);
  const auto logs = read_file(folder_ / "log.jsonl");

  for (const int64_t stop : {4, 8, 13, 24}) {
    fs::remove_all(folder_);
    auto first_half = options();
    first_half.should_stop = [stop](const TrainState& state) { return state.step == stop; };
    Trainer first(first_half);
    const auto stopped = first.train(begin, data_, data_);
    EXPECT_EQ(stopped.step, stop);
    first.save_checkpoint(folder_ / "last", stopped);
    first.save_checkpoint(folder_ / "last", stopped);  // in place of the one before

    auto other = options();
    other.args = Args();  // comes back from the checkpoint
    Trainer second(other);
    const auto restored = second.create_state(model_, tx, kSteps, create(folder_ / "last"));
    EXPECT_EQ(second.args().batch_size_per_device, 8);
    const auto state = second.train(restored, data_, data_);
    EXPECT_EQ(state.step, kSteps);
    EXPECT_EQ(bytes_of(state), bytes_of(expected)) << stop;
    EXPECT_EQ(state.key, expected.key);
    EXPECT_EQ(read_file(folder_ / "log.jsonl"), logs) << stop;
  }
}

/// A collator with settings.
struct Scaled {
  double factor = 1;
  Batch operator()(std::vector<Example> rows) const {
    auto batch = default_data_collator(std::move(rows));
    batch.set("x", batch["x"] * factor);
    return batch;
  }
  nlohmann::json settings() const { return {{"factor", factor}}; }
  static Scaled from_settings(const nlohmann::json& settings) {
    return {settings.at("factor").get<double>()};
  }
};

TEST_F(FunctionalTrainer, RestoresTheCollatorsSettings) {
  auto scaled = options();
  scaled.data_collator = Scaled{2};
  Trainer trainer(scaled);
  const auto state = trainer.create_state(model_, {}, kSteps, create());
  trainer.save_checkpoint(folder_ / "c", state);
  const auto loss = trainer.evaluate(state, data_);
  scaled.data_collator = Scaled{5};
  Trainer other(scaled);
  const auto again = other.create_state(model_, {}, kSteps, create(folder_ / "c"));
  EXPECT_EQ(other.data_collator().settings(), (nlohmann::json{{"factor", 2.0}}));
  EXPECT_EQ(other.evaluate(again, data_), loss);
}

TEST_F(FunctionalTrainer, NamesWhatIsWrong) {
  const auto train_with = [&](TrainStepFn step) {
    auto options = this->options();
    options.train_step_fn = std::move(step);
    Trainer trainer(options);
    return id_and_message_of([&] {
      trainer.train(trainer.create_state(model_, sgd(0.1), kSteps, create()), data_, data_);
    });
  };
  EXPECT_EQ(train_with([](const TrainState& state, Key key, const Batch&) {
              return StepResult{
                  state, {{"accuracy", torch::ones({})}, {"f1", torch::ones({})}}, key};
            }),
            "G-FN-1 train_step_fn returned no 'loss'; its metrics are 'accuracy', 'f1'");
  EXPECT_EQ(train_with([](const TrainState& state, Key key, const Batch&) {
              return StepResult{state, {{"loss", torch::ones({8, 1})}}, key};
            }),
            "G-FN-1 train_step_fn returned a loss that is not a scalar: its shape is [8, 1]");
  auto large = options();
  large.args.batch_size_per_device = 71;
  Trainer trainer(large);
  const auto state = trainer.create_state(model_, sgd(0.1), kSteps, create());
  EXPECT_EQ(id_and_message_of([&] { trainer.evaluate(state, data_); }),
            "G-FN-2 the data set has 70 rows, fewer than one batch of 71");
  large.args.save_steps = 0;
  EXPECT_EQ(id_and_message_of([&] { Trainer{large}; }),
            "G-FN-2 save_steps is 0, expected 1 or more");
}

TEST_F(FunctionalTrainer, RefusesADamagedCheckpoint) {
  Trainer trainer(options());
  const auto state = trainer.create_state(model_, {}, kSteps, create());
  const auto folder = folder_ / "c";
  trainer.save_checkpoint(folder, state);
  const auto restore = [&] {
    return id_and_message_of([&] { restore_checkpoint(folder, state); });
  };
  EXPECT_EQ(restore(), "no error");
  const auto model = read_file(folder / "flax_model.msgpack");
  write_file_atomically(folder / "flax_model.msgpack", model.substr(0, model.size() - 3));
  EXPECT_TRUE(restore().starts_with("G-FLAX-1 cannot read ")) << restore();
  write_file_atomically(folder / "flax_model.msgpack",
                        flax_msgpack_bytes(to_flax(Params({"fc.weight"}, {torch::zeros({2, 2})}))));
  EXPECT_TRUE(
      restore().ends_with("flax_model.msgpack does not fit the model: missing: fc.bias; other "
                          "shapes: fc.weight is [2, 2], expected [1, 4]"))
      << restore();
  write_file_atomically(folder / "flax_model.msgpack", model);
  write_file_atomically(folder / "training_state.json", "{\"step\": -1}");
  EXPECT_TRUE(restore().ends_with("'step' is -1, expected a whole number from 0 on")) << restore();
  write_file_atomically(folder / "training_state.json", "{\"step\": 7}");  // as Python writes it
  EXPECT_EQ(restore(), "no error");
  write_file_atomically(folder / "args.json", "{\"lr\": \"high\"}");
  EXPECT_TRUE(restore().ends_with("lr is \"high\", expected a number")) << restore();
}

TEST(FunctionalArgs, AreThoseOfTheReference) {
  EXPECT_EQ(
      to_json(Args()).dump(),
      R"({"model_id":"google/bigbird-roberta-base","logging_steps":3000,"save_steps":10500,)"
      R"("block_size":128,"num_random_blocks":3,"batch_size_per_device":1,"max_epochs":5,)"
      R"("lr":3e-05,"init_lr":0.0,"warmup_steps":20000,"weight_decay":0.0095,)"
      R"("save_dir":"bigbird-roberta-natural-questions","base_dir":"",)"
      R"("tr_data_path":"data/nq-training.jsonl","val_data_path":"data/nq-validation.jsonl"})");
  EXPECT_EQ((Args{.save_dir = "run", .base_dir = "expt"}.checkpoint_dir(2, 7).string()),
            "expt/run-e2-s7");
}

}  // namespace
}  // namespace gradus::functional
