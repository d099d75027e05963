// Losses against transformers' Trainer with the loss of its research projects; see
// tests/parity/trainers/make_distillation.py.
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>
#include <gradus/trainers/distillation.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include "../../json_tensor.h"
#include "../../silent_log.h"
#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Rows of numbers or of tokens to logits.
class DistilledNet : public Model {
 public:
  DistilledNet(int64_t width, int64_t classes, bool tokens) : classes_(classes) {
    first_ = register_module("first", torch::nn::Linear(4, width));
    last_ = register_module("last", torch::nn::Linear(width, classes));
    if (tokens) embedding_ = register_module("embedding", torch::nn::Embedding(classes, 4));
  }

  ModelOutput forward(const Batch& inputs, const ForwardOptions& = {}) override {
    had_gradients = torch::GradMode::is_enabled();
    const auto x = embedding_ ? embedding_(inputs["x"]) : inputs["x"];
    const auto hidden = torch::tanh(first_(x)), logits = last_(hidden);
    ModelOutput output;
    if (const auto* labels = inputs.find("labels");
        labels != nullptr && !labels->is_floating_point())
      output.set("loss", torch::nn::functional::cross_entropy(logits.view({-1, classes_}),
                                                              labels->view(-1)));
    output.set("logits", logits);
    if (shows_hidden) output.set("last_hidden_state", hidden);
    return output;
  }
  Names keys_to_ignore_at_inference() const override { return {"last_hidden_state"}; }

  bool had_gradients = false, shows_hidden = true;

 private:
  int64_t classes_;
  torch::nn::Linear first_{nullptr}, last_{nullptr};
  torch::nn::Embedding embedding_{nullptr};
};

std::shared_ptr<DistilledNet> net_of(const json& weights) {
  const torch::NoGradGuard no_grad;
  const auto model = std::make_shared<DistilledNet>(int64_t(weights["first.weight"].size()),
                                                    int64_t(weights["last.weight"].size()),
                                                    weights.contains("embedding.weight"));
  for (auto& parameter : model->named_parameters())
    parameter.value().copy_(testing::tensor_of(weights[parameter.key()], torch::kFloat));
  return model;
}

std::shared_ptr<Dataset> data_of(const json& columns) {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& [name, rows] : columns.items()) {
    const json* first = &rows;
    while (first->is_array()) first = &first->front();
    tensors.emplace_back(
        name, testing::tensor_of(rows, first->is_number_integer() ? torch::kLong : torch::kFloat));
  }
  return from_tensors(std::move(tensors));
}

class Distillation : public ::testing::Test {
 protected:
  Distillation()
      : folder_(fs::temp_directory_path() / ("gradus-distil-" + std::to_string(getpid()))) {
    set_log_sink(std::make_shared<testing::SilentLog>());
    torch::manual_seed(1);
  }
  ~Distillation() override {
    set_log_sink(nullptr);
    fs::remove_all(folder_);
  }

  DistillationArguments arguments(const json& alphas = json::object()) const {
    json dict = {{"output_dir", folder_.string()},
                 {"per_device_train_batch_size", 3},
                 {"per_device_eval_batch_size", 12},
                 {"gradient_accumulation_steps", 2},
                 {"max_steps", 10},
                 {"learning_rate", 0.3},
                 {"optim", "sgd"},
                 {"logging_steps", 1},
                 {"save_strategy", "no"},
                 {"report_to", "none"},
                 {"use_cpu", true},
                 {"disable_tqdm", true},
                 {"lr_scheduler_type", "constant"}};
    dict.update(alphas);
    return DistillationArguments::from_json(dict);
  }

  fs::path folder_;
};

}  // namespace

TEST_F(Distillation, LossesAsInPython) {
  for (const auto& one : read_json(GRADUS_SOURCE_DIR "/tests/parity/trainers/distillation.json")) {
    const auto data = data_of(one["columns"]);
    const auto teacher = one["zero_shot"].get<bool>() ? nullptr : net_of(one["teacher"]);
    DistillationTrainer trainer({.model = net_of(one["student"]),
                                 .args = arguments(one["alphas"]),
                                 .train_dataset = data,
                                 .eval_dataset = data,
                                 .teacher = teacher});
    EXPECT_NEAR(trainer.evaluate()["eval_loss"], one["before"].get<double>(), 2e-6);
    trainer.train();
    std::vector<double> losses;
    for (const json entry : trainer.state().log_history)
      if (entry.contains("loss")) losses.push_back(entry["loss"].get<double>());
    ASSERT_EQ(losses.size(), one["losses"].size());
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i] / one["losses"][i].get<double>(), 1.0, 1e-5)
          << dump_json(one["alphas"]);
    EXPECT_NEAR(trainer.evaluate()["eval_loss"], one["after"].get<double>(), 2e-6);
    if (!teacher) continue;
    EXPECT_FALSE(teacher->had_gradients);
    EXPECT_FALSE(teacher->is_training());
    for (const auto& parameter : teacher->parameters()) EXPECT_FALSE(parameter.grad().defined());
  }
}

TEST_F(Distillation, HiddenStatesOfTheLibrarysModels) {
  const json config = {{"model_type", "bert"},
                       {"vocab_size", 20},
                       {"hidden_size", 8},
                       {"intermediate_size", 12},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 2},
                       {"max_position_embeddings", 8},
                       {"num_labels", 3},
                       {"hidden_dropout_prob", 0.0},
                       {"attention_probs_dropout_prob", 0.0}};
  auto small = config;
  small["num_hidden_layers"] = 1;
  const auto ids = torch::randint(20, {12, 5}, torch::kLong);
  const auto data =
      from_tensors({{"input_ids", ids}, {"labels", torch::randint(3, {12}, torch::kLong)}});
  DistillationTrainer trainer(
      {.model = model_from_config(ModelTask::sequence_classification, small),
       .args = arguments({{"alpha_cos", 1.0}}),
       .train_dataset = data,
       .eval_dataset = data,
       .compute_metrics =
           [](const EvalPrediction& p) {
             return Metrics{{"outputs", double(p.prediction_parts.size())}};
           },
       .teacher = model_from_config(ModelTask::sequence_classification, config)});
  const auto before = trainer.evaluate()["eval_loss"];
  trainer.train();
  const auto after = trainer.evaluate();
  EXPECT_LT(after.at("eval_loss"), before);
  EXPECT_EQ(after.at("eval_outputs"), 1);  // hidden states are no predictions
}

TEST_F(Distillation, WhatDoesNotGoTogetherIsRefused) {
  const auto x = torch::randn({6, 4});
  const auto data = from_tensors({{"x", x}, {"labels", torch::zeros({6}, torch::kLong)}});
  const auto student = std::make_shared<DistilledNet>(3, 5, false);
  const auto with = [&](std::shared_ptr<Model> teacher, const json& alphas = json::object()) {
    return [=, this] {
      DistillationTrainer(
          {.model = student, .args = arguments(alphas), .train_dataset = data, .teacher = teacher})
          .train();
    };
  };
  expect_error(with(student), "G-TRAIN-22", {"the same model"});
  expect_error(with(nullptr), "G-TRAIN-22", {"no probabilities"});
  expect_error(with(std::make_shared<DistilledNet>(3, 7, false)), "G-TRAIN-22",
               {"logits have the shape [3, 7], the student's [3, 5]"});
  const auto wide = std::make_shared<DistilledNet>(6, 5, false);
  expect_error(with(wide, {{"alpha_cos", 1.0}}), "G-TRAIN-22", {"hidden states", "width"});
  expect_error(with(wide, {{"alpha_soft", 0}, {"alpha_hard", 0}}), "G-TRAIN-22",
               {"all weights of the loss are 0"});
  wide->shows_hidden = false;
  expect_error(with(wide, {{"alpha_cos", 1.0}}), "G-TRAIN-22", {"the teacher returns none"});
  expect_error(with(wide, {{"temperature", 0}}), "G-CONF-3", {"temperature"});
}

TEST_F(Distillation, ACheckpointKeepsItsArguments) {
  const auto data =
      from_tensors({{"x", torch::randn({6, 4})}, {"labels", torch::zeros({6}, torch::kLong)}});
  DistillationTrainer trainer({.model = std::make_shared<DistilledNet>(3, 5, false),
                               .args = arguments({{"temperature", 3.5}}),
                               .train_dataset = data,
                               .teacher = std::make_shared<DistilledNet>(4, 5, false)});
  trainer.save_model();
  EXPECT_EQ(read_json(folder_ / "training_args.json")["temperature"], 3.5);
}

}  // namespace gradus
