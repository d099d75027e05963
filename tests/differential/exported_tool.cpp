// exported_tool JOBS.json ANSWERS.json: answers exported_test.py and exported_architectures.py.
//
// A job is {"folder", "gradients": FILE} -> {"loss", "peak_mb": memory}: reads a batch from FILE
// and writes the gradients of one training step to FILE.out, and its other outputs to FILE.outputs.
// Or {"folder", "rows": FILE, "args", "resume"} -> {"log_history", "global_step", "step_seconds"}:
// trains on the rows of FILE, one tensor per column. A job with "error" is expected to fail, ->
// {"error": the id, "text"}.
#include <gradus/core/error.h>
#include <gradus/data/collators.h>
#include <gradus/data/dataset.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/exported_model.h>
#include <gradus/models/scripted_model.h>
#include <gradus/train/trainer.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "answer_jobs.h"

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::shared_ptr<gradus::PreTrainedModel> load_model(const json& job) {
  const fs::path folder = job.at("folder").get<std::string>();
  if (gradus::ScriptedModel::is_scripted(folder)) return gradus::ScriptedModel::load(folder);
  return gradus::ExportedModel::load(folder);
}

// Megabytes that this process has had at most.
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

json gradients(const json& job) {
  const auto model = load_model(job);
  const fs::path file = job.at("gradients").get<std::string>();
  gradus::Batch batch;
  for (const auto& [name, tensor] : gradus::read_safetensors(file).tensors) batch.set(name, tensor);
  model->train();
  const auto output = model->forward(batch);
  const auto& loss = output.loss();
  loss.backward();
  gradus::NamedTensors found;
  for (const auto& [name, parameter] : gradus::trainable_parameters(*model))
    if (parameter.grad().defined()) found.emplace_back(name, parameter.grad());
  gradus::write_safetensors(file.string() + ".out", found);
  gradus::NamedTensors others;
  for (const auto& [name, tensor] : output)
    if (name != "loss") others.emplace_back(name, tensor.detach().contiguous());
  gradus::write_safetensors(file.string() + ".outputs", others);
  return {{"loss", loss.item<double>()}, {"peak_mb", peak_memory()}};
}

// Without the first steps, as exported_runs.py takes it.
double median_step(const std::vector<std::chrono::steady_clock::time_point>& ends) {
  std::vector<double> steps;
  for (size_t i = 4; i < ends.size(); ++i)
    steps.push_back(std::chrono::duration<double>(ends[i] - ends[i - 1]).count());
  std::sort(steps.begin(), steps.end());
  return steps.empty() ? 0.0 : steps[steps.size() / 2];
}

json train(const json& job) {
  std::vector<std::pair<std::string, torch::Tensor>> columns;
  for (const auto& [name, tensor] :
       gradus::read_safetensors(job.at("rows").get<std::string>()).tensors)
    columns.emplace_back(name, tensor);
  gradus::TrainerOptions options;
  options.model = load_model(job);
  options.args = gradus::TrainingArguments::from_json(job.at("args"));
  options.train_dataset = gradus::from_tensors(columns);
  options.data_collator = gradus::default_data_collator;
  gradus::Trainer trainer(std::move(options));
  std::vector<std::chrono::steady_clock::time_point> ends;
  trainer.on(gradus::Event::step_end, [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
    ends.push_back(std::chrono::steady_clock::now());
  });
  const auto result =
      trainer.train(job.value("resume", false) ? gradus::Resume::last() : gradus::Resume::none());
  if (job.contains("save")) trainer.save_model(job.at("save").get<std::string>());
  return {{"log_history", trainer.state().log_history},
          {"global_step", result.global_step},
          {"step_seconds", median_step(ends)}};
}

json answer(const json& job) try {
  return job.contains("gradients") ? gradients(job) : train(job);
} catch (const gradus::Error& error) {
  if (!job.contains("error")) throw;
  return {{"error", error.id()}, {"text", error.what()}};
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "exported_tool", answer);
}
