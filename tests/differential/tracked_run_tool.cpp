// tracked_run_tool JOB.json: trains, evaluates and predicts with the trackers of the job, and
// writes what the Trainer itself kept to answer.json in its output_dir. Answers
// tracker_runs_test.py.
//
// A job is {"args", "config": the model's, "metrics": [{name: value}, …], which are those of the
// evaluations in turn, "logs": {step: {name: value}}, logged by the user's own code, "nan_row":
// bool, "sets": names of evaluation sets, "calls": ["train" | "evaluate" | "predict", …]}. Values
// are texts, which may be "nan" and "inf". In the end it says "ready" and waits until its input
// ends.
#include <ATen/Parallel.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>

#include <cmath>
#include <fstream>
#include <iostream>

namespace {

using nlohmann::json;

gradus::Metrics metrics_of(const json& texts) {
  gradus::Metrics metrics;
  for (const auto& [name, text] : texts.items()) metrics[name] = std::stod(text.get<std::string>());
  return metrics;
}

struct Line : gradus::Model {
  explicit Line(json config)
      : config_(std::move(config)),
        a(register_parameter("a", torch::zeros({}))),
        b(register_parameter("b", torch::ones({3}))) {}
  std::vector<std::string> input_names() const override { return {"x", "labels"}; }
  std::string main_input_name() const override { return "x"; }
  json config() const override { return config_; }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = inputs["x"] * a + b.sum();
    return {{"loss", torch::mse_loss(y, inputs["labels"])}, {"logits", y}};
  }
  json config_;
  torch::Tensor a, b;
};

gradus::DatasetRef rows(int64_t count, bool has_nan) {
  const auto x = torch::linspace(-1, 1, count);
  auto labels = 2 * x + 3;
  if (has_nan) labels.data_ptr<float>()[count / 2] = NAN;
  return gradus::from_tensors({{"x", x}, {"labels", labels}});
}

class LoggingTrainer : public gradus::Trainer {
 public:
  using Trainer::log;
  using Trainer::Trainer;
};

void run_job(const json& job) {
  auto args = gradus::TrainingArguments::from_json(job.at("args"));
  gradus::EvalDatasets evaluated = rows(6, false);
  if (!job.at("sets").empty()) {
    gradus::EvalDatasets::Named named;
    for (const auto& name : job.at("sets"))
      named.emplace_back(name.get<std::string>(), rows(6, false));
    evaluated = named;
  }
  LoggingTrainer trainer(
      {.model = std::make_shared<Line>(job.at("config")),
       .args = args,
       .train_dataset = rows(24, job.at("nan_row")),
       .eval_dataset = evaluated,
       .compute_metrics = [&, at = size_t(0)](const gradus::EvalPrediction&) mutable {
         const auto& all = job.at("metrics");
         return all.empty() ? gradus::Metrics() : metrics_of(all[at++ % all.size()]);
       }});
  trainer.on(gradus::Event::step_end,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               const auto found = job.at("logs").find(std::to_string(at.state.global_step));
               if (found != job.at("logs").end()) trainer.log(metrics_of(*found));
             });
  auto predictions = json::array();
  for (const auto& call : job.at("calls")) {
    if (call == "train") trainer.train();
    if (call == "evaluate") trainer.evaluate();
    if (call == "predict") predictions.push_back(trainer.predict(rows(6, false)).metrics);
  }
  trainer.save_state();
  const json found = {{"args", trainer.args().to_dict()},
                      {"predictions", predictions},
                      {"step", trainer.state().global_step}};
  std::ofstream(std::filesystem::path(*args.output_dir) / "answer.json")
      << gradus::dump_json(found, 1);
  std::cout << "ready" << std::endl;
  std::cin.get();
}

}  // namespace

int main(int count, char** words) try {
  if (count != 2) {
    std::cerr << "usage: tracked_run_tool JOB.json\n";
    return 2;
  }
  at::set_num_threads(1);
  gradus::set_log_level(gradus::LogLevel::info);
  run_job(gradus::read_json(words[1]));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "tracked_run_tool: " << error.what() << '\n';
  return 1;
}
