// replay_golden FILE…: trains exactly what a golden file says (see tests/golden/README.md) and
// compares every step with the numbers in it. Prints the worst difference per quantity; exits 1
// above tolerance, 2 for a file it cannot read.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/optimizer.h>
#include <gradus/optim/schedulers.h>
#include <gradus/train/trainer.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cmath>
#include <iostream>

#include "../json_tensor.h"
#include "../silent_log.h"
#include "../test_device.h"

using gradus::testing::tensor_of;
using nlohmann::json;

namespace {

constexpr double kTolerance = 1e-5;
constexpr double kRateTolerance = 1e-9;

bool holds_integers(const json& value) {
  return value.is_array() ? holds_integers(value.front()) : value.is_number_integer();
}

// The worst relative difference seen, by quantity.
class Worst {
 public:
  void compare(const std::string& quantity, double got, double expected) {
    note(quantity, std::abs(got - expected) / std::max(std::abs(expected), 1e-6));
  }
  // A tensor is compared on the scale of its largest element.
  void compare(const std::string& quantity, const torch::Tensor& got,
               const torch::Tensor& expected) {
    const auto scale = std::max(expected.abs().max().item<double>(), 1e-6);
    note(quantity,
         (got.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>() / scale);
  }
  void note(const std::string& quantity, double difference) {
    auto& worst = worst_[quantity];
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  bool report() const {
    bool good = true;
    for (const auto& [quantity, difference] : worst_) {
      const double tolerance = quantity == "learning_rate" ? kRateTolerance : kTolerance;
      good &= difference <= tolerance;
      std::cout << fmt::format(
          "  {:<18} worst {:.3g}{}\n", quantity, difference,
          difference <= tolerance ? "" : fmt::format("  ABOVE {:g}", tolerance));
    }
    return good;
  }

 private:
  std::map<std::string, double> worst_;
};

// y = a x + b with mean squared error, or two linear layers with ReLU between and cross entropy.
class GoldenModel : public gradus::Model {
 public:
  GoldenModel(bool regression, const json& parameters, bool accepts_loss_kwargs)
      : regression_(regression), accepts_(accepts_loss_kwargs) {
    if (regression_) {
      a_ = register_parameter("a", tensor_of(parameters.at("a"), torch::kFloat));
      b_ = register_parameter("b", tensor_of(parameters.at("b"), torch::kFloat));
      return;
    }
    const auto layer = [&](const std::string& name) {
      const auto weight = tensor_of(parameters.at(name + ".weight"), torch::kFloat);
      auto linear = register_module(name, torch::nn::Linear(weight.size(1), weight.size(0)));
      const torch::NoGradGuard no_grad;
      linear->weight.copy_(weight);
      linear->bias.copy_(tensor_of(parameters.at(name + ".bias"), torch::kFloat));
      return linear;
    };
    l1_ = layer("l1");
    l2_ = layer("l2");
  }

  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y =
        regression_ ? inputs["x"] * a_ + b_ : l2_->forward(torch::relu(l1_->forward(inputs["x"])));
    gradus::ModelOutput out;
    if (const auto* labels = inputs.find("labels"))
      out.set("loss",
              regression_ ? torch::mse_loss(y, *labels) : torch::cross_entropy_loss(y, *labels));
    out.set("logits", y);
    return out;
  }
  bool accepts_loss_kwargs() const override { return accepts_; }

 private:
  bool regression_, accepts_;
  torch::Tensor a_, b_;
  torch::nn::Linear l1_{nullptr}, l2_{nullptr};
};

class ReplayTrainer : public gradus::Trainer {
 public:
  ReplayTrainer(gradus::TrainerOptions options, const json& steps, Worst& worst)
      : Trainer(std::move(options)), steps_(steps), worst_(worst) {
    on(gradus::Event::pre_optimizer_step,
       [this](const gradus::CallbackContext& at, gradus::TrainerControl&) {
         for (const auto& parameter : at.model->named_module().named_parameters())
           compare("grads_after_clip", parameter.key(), parameter.value().grad());
       });
    on(gradus::Event::step_end, [this](const gradus::CallbackContext& at, gradus::TrainerControl&) {
      for (const auto& parameter : at.model->named_module().named_parameters())
        compare("params_after", parameter.key(), parameter.value());
      micro_ = 0;
      ++step_;
    });
  }

  int64_t steps_done() const { return step_; }

 protected:
  torch::Tensor training_step(gradus::Model& model, gradus::Batch inputs,
                              std::optional<torch::Tensor> num_items_in_batch) override {
    const auto indices = inputs.pop("index");
    const auto loss = Trainer::training_step(model, std::move(inputs), num_items_in_batch);
    if (const auto* expected = micro_batch()) {
      const bool same =
          torch::equal(indices.cpu(), tensor_of(expected->at("indices"), torch::kLong));
      worst_.note("order", same ? 0 : INFINITY);
      worst_.compare("micro_loss", loss.item<double>(), expected->at("loss").get<double>());
    }
    ++micro_;
    return loss;
  }

 private:
  const json* micro_batch() const {
    if (step_ >= int64_t(steps_.size())) return nullptr;
    const auto& micros = steps_[size_t(step_)].at("micro_batches");
    return micro_ < micros.size() ? &micros[micro_] : nullptr;
  }
  void compare(const char* quantity, const std::string& name, const torch::Tensor& got) {
    if (step_ < int64_t(steps_.size()) && steps_[size_t(step_)].contains(quantity))
      worst_.compare(quantity, got.cpu(),
                     tensor_of(steps_[size_t(step_)][quantity].at(name), torch::kFloat));
  }

  const json& steps_;
  Worst& worst_;
  int64_t step_ = 0;
  size_t micro_ = 0;
};

bool replay_training(const json& golden) {
  auto arguments = golden.at("training_args");
  if (golden.contains("optim")) arguments["optim"] = golden["optim"];
  std::string optim_args = arguments.value("optim_args", "");
  const auto kwargs = golden.value("optimizer_kwargs", json::object());
  for (const auto& [key, value] : kwargs.items())
    optim_args += fmt::format("{}{}={}", optim_args.empty() ? "" : ",", key,
                              value.is_string() ? value.get<std::string>() : value.dump());
  if (!optim_args.empty()) arguments["optim_args"] = optim_args;
  auto args = gradus::TrainingArguments::from_json(arguments);
  char folder[] = "/tmp/replay_golden_XXXXXX";
  if (::mkdtemp(folder) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  args.output_dir = folder;
  args.logging_strategy = "steps";
  args.logging_steps = 1;
  args.save_strategy = "no";
  args.disable_tqdm = true;
  args.use_cpu = !gradus::testing::on_gpu();

  const bool regression = golden.at("model") == "regression";
  const auto& data = golden.at("data");
  const auto x = tensor_of(data.at("x"), torch::kFloat);
  const auto y =
      tensor_of(data.at("y"), holds_integers(data.at("y")) ? torch::kLong : torch::kFloat);
  const auto rows =
      gradus::from_tensors({{"x", x}, {"labels", y}, {"index", torch::arange(x.size(0))}});
  auto model = std::make_shared<GoldenModel>(
      regression, golden.at("initial_params"),
      golden.at("effective").value("model_accepts_loss_kwargs", false));

  Worst worst;
  ReplayTrainer trainer({.model = model, .args = args, .train_dataset = rows}, golden.at("steps"),
                        worst);
  const auto result = trainer.train();
  std::filesystem::remove_all(folder);
  const auto& steps = golden.at("steps");
  const auto& history = trainer.state().log_history;
  worst.note("steps", trainer.steps_done() == int64_t(steps.size()) ? 0 : INFINITY);
  for (size_t i = 0; i < steps.size() && i < history.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "learning_rate", "epoch"})
      if (steps[i].contains(key))
        worst.compare(key, history[i].value(key, double(NAN)), steps[i][key].get<double>());
  if (golden.contains("train_loss"))
    worst.compare("train_loss", result.training_loss, golden["train_loss"].get<double>());
  return worst.report();
}

bool replay_schedule(const json& golden) {
  auto parameter = torch::zeros({1}, torch::requires_grad());
  gradus::AdamW optimizer({parameter}, {.lr = golden.at("base_lr").get<double>()});
  const auto& rates = golden.at("lr");
  const auto schedule =
      gradus::get_scheduler(golden.at("name"), optimizer, golden.at("warmup").get<int64_t>(),
                            golden.at("steps").get<int64_t>(), golden.value("kwargs", json()));
  Worst worst;
  for (const auto& rate : rates) {
    worst.compare("learning_rate", optimizer.param_groups()[0].lr, rate.get<double>());
    schedule->step();
  }
  return worst.report();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: replay_golden FILE…\n";
    return 2;
  }
  at::set_num_threads(1);
  gradus::set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  int status = 0;
  for (int i = 1; i < argc; ++i) {
    try {
      const auto golden = gradus::read_json(argv[i]);
      std::cout << argv[i] << '\n';
      const bool good =
          golden.at("kind") == "schedule" ? replay_schedule(golden) : replay_training(golden);
      if (!good) status = std::max(status, 1);
    } catch (const std::exception& error) {
      std::cerr << argv[i] << ": " << error.what() << '\n';
      status = 2;
    }
  }
  return status;
}
