// The table of tasks, and tasks whose trainer has arguments of its own.
#include <gradus/tasks/task.h>
#include <gradus/trainers/registry.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

struct ScaledDefaults : TrainingDefaults {
  static double learning_rate() { return 0.25; }
};

struct ScaledArguments {
#define GRADUS_DEFAULTS ScaledDefaults
#include <gradus/config/training_arguments_fields.inc>

  double loss_scale = 1.0;

  static std::span<const OptionRow<ScaledArguments>> own_options();
  operator TrainingArguments() const { return common_arguments(*this); }
};

constexpr OptionRow<ScaledArguments> kScaledRows[] = {
    {&ScaledArguments::loss_scale, "loss_scale", Group::trainer, above(0), "Factor of the loss."},
};
std::span<const OptionRow<ScaledArguments>> ScaledArguments::own_options() { return kScaledRows; }

class ScaledTrainer : public Trainer {
 public:
  explicit ScaledTrainer(TrainerOptionsWith<ScaledArguments> options)
      : Trainer(options), scale_(options.args.loss_scale) {}

 protected:
  Loss compute_loss(Model& model, Batch inputs, std::optional<torch::Tensor>) override {
    auto outputs = model.forward(inputs);
    return {.loss = outputs["loss"] * scale_, .outputs = outputs};
  }

 private:
  double scale_;
};

class ScaledTask : public Task {
 public:
  std::string name() const override { return "scaled"; }
  std::string trainer() const override { return "ScaledTrainer"; }
  void add_options(OptionSet&) override {}
  void check(const TrainingArguments&) const override {}
  PreparedTask prepare(const TrainingArguments&) override {
    seen_scale = arguments().as<ScaledArguments>().loss_scale;
    PreparedTask prepared;
    prepared.trainer.model =
        make_model(torch::nn::Linear(1, 1),
                   [](torch::nn::LinearImpl& linear, const Batch& batch) -> ModelOutput {
                     return {{"loss", linear.forward(batch["x"]).sum() * 0 + 1}};
                   });
    prepared.trainer.train_dataset = from_tensors({{"x", torch::ones({8, 1})}});
    return prepared;
  }

  double seen_scale = 0;
};

TEST(RegisterTask, IsMadeByItsName) {
  register_task("scaled", [] { return std::make_unique<ScaledTask>(); });
  EXPECT_EQ(task_names().front(), "causal-lm");
  EXPECT_EQ(task_names().back(), "scaled");
  EXPECT_EQ(make_task("scaled")->name(), "scaled");
  expect_error([] { make_task("scale"); }, "G-TASK-1",
               {"there is no task 'scale'", "Did you mean scaled?", "natural-questions or scaled"});
  expect_error([] { register_task("scaled", [] { return std::make_unique<ScaledTask>(); }); },
               "G-REG-1", {"register_task: 'scaled' is there already"});
}

TEST(TaskArguments, AreThoseOfItsTrainer) {
  set_log_sink(std::make_shared<testing::SilentLog>());
  ScaledTask early;
  expect_error([&] { early.arguments(); }, "G-REG-3", {"there is no trainer 'ScaledTrainer'"});
  register_trainer<ScaledTrainer, ScaledArguments>("ScaledTrainer");

  ScaledTask task;
  OptionSet options;
  task.add_options(options);
  task.arguments().add_to(options);
  EXPECT_EQ(options.describe().back()["name"], "loss_scale");
  const std::vector<std::string> words = {
      "--loss_scale",    "7",    "--max_steps",     "2",
      "--do_train",      "true", "--output_dir",    ::testing::TempDir() + "scaled",
      "--report_to",     "none", "--logging_steps", "1",
      "--save_strategy", "no",   "--disable_tqdm",  "true"};
  options.parse(words);
  task.arguments().resolve();
  const auto args = task.arguments().common();
  EXPECT_EQ(args.learning_rate, 0.25);
  const auto result = run_task(task, args, /*handle_signals=*/false);
  EXPECT_EQ(task.seen_scale, 7);
  EXPECT_EQ(result.global_step, 2);
  EXPECT_EQ(result.metrics.at("train").at("train_loss"), 7);
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace gradus
