// trainer_tool RUNS.json RESULTS.json: trains every run of the first file and writes what happened. Answers trainer_test.py.
//
// A run is {"args", "model": "regression" | "classifier", "parameters", "dropout", "train": {"x", "labels"}, "eval",
// "accuracy", "early_stopping", "resume", "trains"}; a result {"log_history", "events", "train_loss", "global_step", "state", "parameters"}.
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <fstream>
#include <iostream>

using nlohmann::json;

namespace {

torch::Tensor tensor_of(const json& value, torch::ScalarType dtype) {
  std::vector<int64_t> sizes;
  for (const json* level = &value; level->is_array(); level = &level->front()) sizes.push_back(int64_t(level->size()));
  std::vector<double> flat;
  const std::function<void(const json&)> collect = [&](const json& each) {
    if (each.is_array()) for (const auto& child : each) collect(child);
    else flat.push_back(each.get<double>());
  };
  collect(value);
  return torch::tensor(flat, torch::kDouble).reshape(sizes).to(dtype);
}

// y = a x + b with mean squared error.
class Regression : public gradus::Model {
 public:
  explicit Regression(const json& parameters)
      : a_(register_parameter("a", tensor_of(parameters.at("a"), torch::kFloat))), b_(register_parameter("b", tensor_of(parameters.at("b"), torch::kFloat))) {}
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

class Recorder : public gradus::TrainerCallback {
 public:
#define RECORD(event) \
  void on_##event(const gradus::TrainingArguments&, gradus::TrainerState&, gradus::TrainerControl&, const gradus::CallbackContext&) override { events.push_back("on_" #event); }
  RECORD(init_end)
  RECORD(train_begin)
  RECORD(train_end)
  RECORD(epoch_begin)
  RECORD(epoch_end)
  RECORD(step_begin)
  RECORD(pre_optimizer_step)
  RECORD(optimizer_step)
  RECORD(substep_end)
  RECORD(step_end)
  RECORD(evaluate)
  RECORD(predict)
  RECORD(save)
  RECORD(log)
  RECORD(prediction_step)
  RECORD(push_begin)
#undef RECORD
  std::vector<std::string> events;
};

gradus::Metrics almost_accuracy(const gradus::EvalPrediction& p) { return {{"accuracy", (p.predictions - p.label_ids).abs().le(0.25).to(torch::kDouble).mean().item<double>()}}; }

json run_one(const json& run) {
  const bool classify = run.at("model") == "classifier";
  const auto rows = [&](const json& data) {
    return gradus::from_tensors({{"x", tensor_of(data.at("x"), torch::kFloat)}, {"labels", tensor_of(data.at("labels"), classify ? torch::kLong : torch::kFloat)}});
  };
  std::shared_ptr<gradus::Model> model;
  if (classify) model = std::make_shared<Classifier>(run.at("parameters"), run.value("dropout", 0.0));
  else model = std::make_shared<Regression>(run.at("parameters"));
  const auto recorder = std::make_shared<Recorder>();
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

class Silent : public gradus::LogSink {
  void message(gradus::LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: trainer_tool RUNS.json RESULTS.json\n";
    return 2;
  }
  at::set_num_threads(1);
  gradus::set_log_sink(std::make_shared<Silent>());
  json results = json::array();
  for (const auto& run : gradus::read_json(argv[1])) results.push_back(run_one(run));
  std::ofstream(argv[2]) << gradus::dump_json(results, 1);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "trainer_tool: " << error.what() << '\n';
  return 1;
}
