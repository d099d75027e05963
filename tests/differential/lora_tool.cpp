// lora_tool JOBS.json ANSWERS.json: answers lora_test.py.
//
// A job is {"folder", "task", "lora", "seed", "rows", "batch", "args", "out"} and may have "load"
// (an adapter to start from), "resume" (a checkpoint to go on from) and "other" (the fields of a
// second adapter). The answer is {"text",
// "log_history"}; tensors and folders are written below "out".
#include <gradus/data/dataset.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gradus/train/trainer.h>
#include <torch/utils.h>

#include "answer_jobs.h"

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

gradus::ModelTask task_of(const std::string& name) {
  if (name == "classification") return gradus::ModelTask::sequence_classification;
  if (name == "tokens") return gradus::ModelTask::token_classification;
  if (name == "question") return gradus::ModelTask::question_answering;
  if (name == "masked") return gradus::ModelTask::masked_lm;
  return name == "seq2seq" ? gradus::ModelTask::seq2seq_lm : gradus::ModelTask::causal_lm;
}

gradus::Example to_example(const json& row) {
  gradus::Example example;
  for (const auto& [name, value] : row.items())
    if (value.is_array())
      example.set(name, value.get<std::vector<int64_t>>());
    else
      example.set(name, value.get<int64_t>());
  return example;
}

gradus::Batch to_batch(const json& columns) {
  gradus::Batch batch;
  for (const auto& [name, rows] : columns.items()) {
    std::vector<torch::Tensor> tensors;
    for (const auto& row : rows)
      tensors.push_back(row.is_array() ? torch::tensor(row.get<std::vector<int64_t>>())
                                       : torch::tensor(row.get<int64_t>()));
    batch.set(name, torch::stack(tensors));
  }
  return batch;
}

torch::Tensor logits_of(gradus::Model& model, const gradus::Batch& batch) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto output = model.forward(batch);
  return output[output.contains("start_logits") ? "start_logits" : "logits"].clone();
}

// Loss and gradients without dropout.
gradus::NamedTensors gradients_of(gradus::PeftModel& model, const gradus::Batch& batch) {
  model.eval();
  const auto loss = model.forward(batch)["loss"];
  loss.backward();
  gradus::NamedTensors values = {{"loss", loss.detach().clone()}};
  for (const auto& [name, parameter] : gradus::trainable_parameters(model))
    values.emplace_back("grad." + name, parameter.grad().clone());
  model.zero_grad();
  return values;
}

json answer(const json& job) {
  const fs::path folder = job.at("folder").get<std::string>(),
                 out = job.at("out").get<std::string>();
  const auto base =
      gradus::model_from_pretrained(task_of(job.at("task").get<std::string>()), folder);
  const auto batch = to_batch(job.at("batch"));
  torch::manual_seed(job.at("seed").get<uint64_t>());
  const auto model =
      job.contains("load")
          ? gradus::PeftModel::from_pretrained(base, job.at("load").get<std::string>(), "default",
                                               /*is_trainable=*/true)
          : gradus::get_peft_model(base, gradus::LoraConfig::from_json(job.at("lora")));
  json result = {{"text", model->trainable_parameters_text()}};
  model->save_pretrained(out / "start");
  gradus::NamedTensors values = {{"logits", logits_of(*model, batch)}};
  for (auto& item : gradients_of(*model, batch)) values.push_back(std::move(item));

  auto options = gradus::TrainerOptions{.model = model};
  auto args = job.at("args");
  args["output_dir"] = (out / "run").string();
  options.args = gradus::TrainingArguments::from_json(args);
  std::vector<gradus::Example> rows;
  for (const auto& row : job.at("rows")) rows.push_back(to_example(row));
  options.train_dataset = gradus::from_examples(rows);
  gradus::Trainer trainer(options);
  if (job.contains("resume"))
    trainer.train(gradus::Resume::from(job.at("resume").get<std::string>()));
  else
    trainer.train();
  trainer.save_model(out / "final");
  result["log_history"] = trainer.state().log_history;

  values.emplace_back("trained", logits_of(*model, batch));
  {
    const auto off = model->disable_adapter();
    values.emplace_back("disabled", logits_of(*model, batch));
  }
  model->merge_adapter();
  values.emplace_back("merged", logits_of(*model, batch));
  model->unmerge_adapter();
  values.emplace_back("unmerged", logits_of(*model, batch));
  model->set_scale(0.5);
  values.emplace_back("scaled", logits_of(*model, batch));
  model->set_scale(1);
  values.emplace_back("scaled back", logits_of(*model, batch));
  if (job.contains("other")) {
    torch::manual_seed(job.at("seed").get<uint64_t>() + 1);
    model->add_adapter("other", gradus::LoraConfig::from_json(job.at("other")));
    values.emplace_back("beside another", logits_of(*model, batch));
    model->set_adapter("other");
    values.emplace_back("other", logits_of(*model, batch));
    model->set_adapter("default");
  }
  values.emplace_back("unloaded", logits_of(*model->merge_and_unload(), batch));
  gradus::write_safetensors(out / "values.safetensors", values);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "lora_tool", answer);
}
