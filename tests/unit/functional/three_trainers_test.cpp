#include <ATen/ops/mse_loss.h>
#include <gradus/functional/trainer.h>
#include <gradus/hooks/trainer.h>
#include <gradus/optim/sgd.h>
#include <gradus/train/trainer.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

namespace gradus {
namespace {

// The small model of docs/user/trainers.md, trained the three ways. Every step sees all rows, so
// their order does not matter.
constexpr int64_t kRows = 64, kSteps = 20;
constexpr double kRate = 0.1;

struct Problem {
  Problem() {
    torch::manual_seed(9);
    const auto x = torch::randn({kRows, 4});
    data = from_tensors({{"x", x}, {"y", x.sum(1, true)}});
    layer = torch::nn::Linear(4, 1);
  }
  std::shared_ptr<Dataset> data;
  torch::nn::Linear layer{nullptr};

  double loss() {
    const auto all = default_data_collator(rows());
    return at::mse_loss(layer->forward(all["x"]), all["y"]).item<double>();
  }
  std::vector<Example> rows() const {
    std::vector<Example> rows;
    for (int64_t i = 0; i < kRows; ++i) rows.push_back(data->get(i));
    return rows;
  }
};

double with_trainer() {
  Problem problem;
  auto model = make_model(problem.layer, [](torch::nn::LinearImpl& layer, const Batch& batch) {
    const auto output = layer.forward(batch["x"]);
    return ModelOutput{{"loss", at::mse_loss(output, batch["y"])}, {"logits", output}};
  });
  Trainer trainer({.model = model,
                   .args = {.output_dir = testing::TempDir() + "gradus-three-trainers",
                            .per_device_train_batch_size = kRows,
                            .num_train_epochs = double(kSteps),
                            .learning_rate = kRate,
                            .lr_scheduler_type = "constant",
                            .optim = "sgd",
                            .max_grad_norm = 0,
                            .disable_tqdm = true,
                            .save_strategy = "no",
                            .use_cpu = true,
                            .remove_unused_columns = false},
                   .train_dataset = problem.data});
  trainer.train();
  return problem.loss();
}

double with_hooks() {
  Problem problem;
  auto layer = problem.layer.ptr();
  hooks::Trainer trainer(
      {.model = layer,
       .train_step = [layer](const Batch& batch, hooks::Trainer&) -> hooks::Result {
         return {{"loss", at::mse_loss(layer->forward(batch["x"]), batch["y"])}};
       },
       .train_dl = DataLoader({.dataset = problem.data, .batch_size = kRows}),
       .optim = std::make_shared<SGD>(layer->parameters(), SGDOptions{.lr = kRate}),
       .epochs = kSteps,
       .device = torch::Device(torch::kCPU)});
  trainer.fit();
  return problem.loss();
}

double with_state() {
  Problem problem;
  const auto model = wrap(problem.layer, [](torch::nn::LinearImpl& layer, const Batch& batch) {
    return at::mse_loss(layer.forward(batch["x"]), batch["y"]);
  });
  functional::Trainer trainer(
      {.args = {.batch_size_per_device = kRows, .max_epochs = kSteps}, .show_progress = false});
  const auto state = trainer.train(trainer.create_state(model, functional::sgd(kRate), kSteps),
                                   problem.data, problem.data);
  model.store(state.params);
  return problem.loss();
}

TEST(ThreeTrainers, ReachTheSameLoss) {
  const auto start = Problem().loss();
  const auto expected = with_trainer();
  EXPECT_LT(expected, start / 10);
  EXPECT_NEAR(with_state(), expected, 1e-6 * start);
  EXPECT_NEAR(with_hooks(), expected, 1e-6 * start);
}

}  // namespace
}  // namespace gradus
