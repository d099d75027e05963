// trainer_tool JOBS.json ANSWERS.json: trains every run of the first file and writes what happened. Answers trainer_test.py.
//
// A run is {"args", "model": "regression" | "classifier", "parameters", "dropout", "train": {"x", "labels", "lengths"}, "eval",
// "accuracy", "early_stopping", "resume", "trains"}; a result {"log_history", "events", "train_loss", "global_step", "state", "parameters"}.
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <torch/nn/modules/linear.h>

#include "../event_recorder.h"
#include "../json_tensor.h"
#include "answer_jobs.h"

using gradus::testing::tensor_of;
using nlohmann::json;

namespace {

// y = a x + b with mean squared error.
class Regression : public gradus::Model {
 public:
  explicit Regression(const json& parameters)
      : a_(register_parameter("a", tensor_of(parameters.at("a"), torch::kFloat))), b_(register_parameter("b", tensor_of(parameters.at("b"), torch::kFloat))) {}
  std::vector<std::string> input_names() const override { return {"x", "labels"}; }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = inputs["x"] * a_ + b_;
    gradus::ModelOutput out;
    if (inputs.contains("labels")) out.set("loss", torch::mse_loss(y, inputs["labels"]));
    out.set("logits", y);
    return out;
  }

 private:
  torch::Tensor a_, b_;
};

// Two linear layers with ReLU and dropout between, cross entropy.
class Classifier : public gradus::Model {
 public:
  Classifier(const json& parameters, double dropout) : dropout_(dropout), l1_(layer("l1", parameters)), l2_(layer("l2", parameters)) {}
  std::vector<std::string> input_names() const override { return {"x", "labels"}; }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = l2_->forward(torch::dropout(torch::relu(l1_->forward(inputs["x"])), dropout_, is_training()));
    gradus::ModelOutput out;
    if (inputs.contains("labels")) out.set("loss", torch::cross_entropy_loss(y, inputs["labels"]));
    out.set("logits", y);
    return out;
  }

 private:
  torch::nn::Linear layer(const std::string& name, const json& parameters) {
    const auto weight = tensor_of(parameters.at(name + ".weight"), torch::kFloat);
    auto linear = register_module(name, torch::nn::Linear(weight.size(1), weight.size(0)));
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(weight);
    linear->bias.copy_(tensor_of(parameters.at(name + ".bias"), torch::kFloat));
    return linear;
  }

  double dropout_;
  torch::nn::Linear l1_, l2_;
};

gradus::Metrics almost_accuracy(const gradus::EvalPrediction& p) { return {{"accuracy", (p.predictions - p.label_ids).abs().le(0.25).to(torch::kDouble).mean().item<double>()}}; }

json run_one(const json& run) {
  const bool classify = run.at("model") == "classifier";
  const auto rows = [&](const json& data) -> std::shared_ptr<gradus::Dataset> {
    const auto x = tensor_of(data.at("x"), torch::kFloat), labels = tensor_of(data.at("labels"), classify ? torch::kLong : torch::kFloat);
    if (!data.contains("lengths")) return gradus::from_tensors({{"x", x}, {"labels", labels}});
    std::vector<gradus::Example> examples;  // input_ids have the wanted length and nothing else; the model does not take them
    for (int64_t i = 0; i < x.size(0); ++i)
      examples.push_back({{"x", x[i]}, {"labels", labels[i]}, {"input_ids", std::vector<int64_t>(data["lengths"][static_cast<size_t>(i)].get<size_t>(), 0)}});
    return gradus::from_examples(std::move(examples));
  };
  std::shared_ptr<gradus::Model> model;
  if (classify) model = std::make_shared<Classifier>(run.at("parameters"), run.value("dropout", 0.0));
  else model = std::make_shared<Regression>(run.at("parameters"));
  const auto recorder = std::make_shared<gradus::testing::EventRecorder>();
  gradus::TrainerOptions options{.model = model, .args = gradus::TrainingArguments::from_json(run.at("args")), .train_dataset = rows(run.at("train"))};
  if (run.contains("eval")) options.eval_dataset = rows(run["eval"]);
  if (run.value("accuracy", false)) options.compute_metrics = almost_accuracy;
  if (run.contains("early_stopping")) options.callbacks.push_back(std::make_shared<gradus::EarlyStoppingCallback>(run["early_stopping"].get<int64_t>()));
  options.callbacks.push_back(recorder);
  gradus::Trainer trainer(std::move(options));
  gradus::TrainOutput result;
  for (int64_t i = 0; i < run.value("trains", int64_t{1}); ++i)
    result = trainer.train(run.contains("resume") ? gradus::Resume::from(run["resume"].get<std::string>()) : gradus::Resume::none());
  json parameters = json::object();
  for (const auto& item : model->state_dict()) {
    const auto flat = item.value().detach().to(torch::kDouble).contiguous().flatten();
    parameters[item.key()] = std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  auto state = trainer.state().to_json();
  state.erase("log_history");
  return {{"log_history", trainer.state().log_history}, {"events", recorder->events}, {"train_loss", result.training_loss},
          {"global_step", result.global_step},          {"state", state},             {"parameters", parameters}};
}

}  // namespace

int main(int argc, char** argv) { return gradus::testing::answer_jobs(argc, argv, "trainer_tool", run_one); }
