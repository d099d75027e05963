// search_tool JOBS.json ANSWERS.json: searches, for search_test.py. A job is one of
// {"do": "run", "file", "seed", "trials", "pruner"}: searches a bowl, with reports;
// {"do": "read", "file", "name", "direction"}: what a study holds;
// {"do": "prune", "pruner", "direction", "levels": [[value, …], …]}: where trials are stopped;
// {"do": "train", "args", "x", "labels", "seed", "trials", "storage", "direction"}: a Trainer's
// search over a regression.
#include <gradus/data/dataset.h>
#include <gradus/train/trainer.h>

#include <cmath>

#include "../json_tensor.h"
#include "answer_jobs.h"

using gradus::testing::tensor_of;
using nlohmann::json;
namespace search = gradus::search;

namespace {

json describe(const search::Study& study) {
  auto all = json::array();
  for (const auto& trial : study.trials()) {
    json reports = json::object();
    for (const auto& [step, value] : trial.intermediate_values)
      reports[std::to_string(step)] =
          std::isfinite(value) ? json(value) : json(std::to_string(value));
    all.push_back({{"number", trial.number},
                   {"state", search::state_name(trial.state)},
                   {"value", trial.value ? json(*trial.value) : json()},
                   {"params", trial.params()},
                   {"reports", reports},
                   {"user_attrs", trial.user_attrs}});
  }
  return all;
}

double bowl(search::Trial& trial) {
  const double x = trial.suggest_float("x", -5, 5);
  const auto width = trial.suggest_int("width", 1, 512, true);
  const auto depth = trial.suggest_int("depth", 2, 20, false, 3);
  const double decay = trial.suggest_float("decay", 0, 0.5, false, 0.1);
  const auto kind = trial.suggest_categorical("kind", {"a", nullptr, 2, 2.5, true});
  trial.set_user_attr("folder", {{"path", "run-" + std::to_string(trial.number())}});
  const double value = x * x + std::abs(std::log2(double(width)) - 4) + 0.1 * double(depth) +
                       decay + (kind == 2.5 ? 0 : 1);
  for (int64_t step = 1; step <= 8; ++step) {
    trial.report(step == 3 && trial.number() == 4 ? std::nan("") : value + 1 / double(step), step);
    if (trial.should_prune()) throw search::TrialPruned();
  }
  return value;
}

json run_study(const json& job) {
  search::Study study({.storage = job.at("file").get<std::string>(),
                       .study_name = job.value("name", "bowl"),
                       .sampler = search::make_sampler("tpe", job.at("seed").get<uint64_t>()),
                       .pruner = search::make_pruner(job.at("pruner"))});
  study.optimize(bowl, job.at("trials"));
  return describe(study);
}

json read_study(const json& job) {
  const search::Study study({.storage = job.at("file").get<std::string>(),
                             .study_name = job.at("name"),
                             .direction = job.at("direction")});
  return {{"trials", describe(study)}, {"best", study.best_trial().number}};
}

json prune(const json& job) {
  search::Study study({.direction = job.at("direction"),
                       .sampler = search::make_sampler("random", 1),
                       .pruner = search::make_pruner(job.at("pruner"))});
  const auto& levels = job.at("levels");
  study.optimize(
      [&](search::Trial& trial) {
        double last = 0;
        int64_t step = 0;
        for (const auto& level : levels.at(size_t(trial.number()))) {
          last = level;
          trial.report(last, ++step);
          if (trial.should_prune()) throw search::TrialPruned();
        }
        return last;
      },
      int64_t(levels.size()));
  auto lengths = json::array();
  for (const auto& trial : study.trials()) lengths.push_back(trial.intermediate_values.size());
  return lengths;
}

class Line : public gradus::Model {
 public:
  Line()
      : a_(register_parameter("a", torch::zeros({}))),
        b_(register_parameter("b", torch::zeros({}))) {}
  std::vector<std::string> input_names() const override { return {"x", "labels"}; }
  std::string main_input_name() const override { return "x"; }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = inputs["x"] * a_ + b_;
    gradus::ModelOutput out;
    out.set("loss", torch::mse_loss(y, inputs["labels"]));
    out.set("logits", y);
    return out;
  }

 private:
  torch::Tensor a_, b_;
};

json train(const json& job) {
  const auto rows = gradus::from_tensors({{"x", tensor_of(job.at("x"), torch::kFloat)},
                                          {"labels", tensor_of(job.at("labels"), torch::kFloat)}});
  gradus::Trainer trainer({.args = gradus::TrainingArguments::from_json(job.at("args")),
                           .train_dataset = rows,
                           .eval_dataset = rows,
                           .model_init = [] { return std::make_shared<Line>(); }});
  const std::string storage = job.at("storage");
  const auto best = trainer.hyperparameter_search(
      {.hp_space = [](search::Trial& trial) -> json {
         return {{"learning_rate", trial.suggest_float("learning_rate", 1e-3, 0.3, true)},
                 {"num_train_epochs", trial.suggest_int("num_train_epochs", 1, 3)},
                 {"per_device_train_batch_size",
                  trial.suggest_categorical("per_device_train_batch_size", {4, 8, 16})}};
       },
       .n_trials = job.at("trials"),
       .direction = job.at("direction"),
       .hp_name = [](search::Trial& trial) { return "trial_" + std::to_string(trial.number()); },
       .storage = storage,
       .study_name = "line",
       .sampler = search::make_sampler("tpe", job.at("seed").get<uint64_t>())});
  const search::Study study(
      {.storage = storage, .study_name = "line", .direction = job.at("direction")});
  return {{"run_id", best.run_id},
          {"objective", best.objective},
          {"hyperparameters", best.hyperparameters},
          {"is_hyper_param_search", trainer.state().is_hyper_param_search},
          {"trial_name", *trainer.state().trial_name},
          {"trial_params", trainer.state().trial_params},
          {"learning_rate", trainer.args().learning_rate},
          {"trials", describe(study)}};
}

json answer(const json& job) {
  const std::string what = job.at("do");
  return what == "run"     ? run_study(job)
         : what == "read"  ? read_study(job)
         : what == "prune" ? prune(job)
                           : train(job);
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "search_tool", answer);
}
