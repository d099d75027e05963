// seq2seq_tool JOBS.json ANSWERS.json: answers seq2seq_trainer_test.py.
//
// A job is {"folder", "task", "args", "train": rows, "eval": rows or {"sets": [[name, rows]]},
// "test": rows, "evaluate": options, "predict": options}: trains, evaluates and predicts with these
// options of generation, and saves the model. A row has lists of numbers as the model takes them.
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/models/auto_model.h>
#include <gradus/trainers/seq2seq.h>

#include "answer_jobs.h"

using nlohmann::json;

namespace {

std::shared_ptr<gradus::Dataset> dataset(const json& rows) {
  std::vector<gradus::Example> examples;
  for (const auto& row : rows) {
    auto& example = examples.emplace_back();
    for (const auto& [name, value] : row.items())
      example.set(name, value.get<std::vector<int64_t>>());
  }
  return gradus::from_examples(std::move(examples));
}

gradus::EvalDatasets eval_sets(const json& given) {
  if (given.is_array()) return dataset(given);
  gradus::EvalDatasets::Named named;
  for (const auto& each : given.at("sets"))
    named.emplace_back(each.at(0).get<std::string>(), dataset(each.at(1)));
  return named;
}

// What the predictions are made of, in two numbers.
gradus::Metrics summary(const gradus::EvalPrediction& p) {
  const auto tokens = p.prediction_parts.at(0).to(torch::kDouble);
  return {{"rows", double(tokens.size(0))},
          {"width", double(tokens.size(1))},
          {"square", tokens.square().mean().item<double>()},
          {"label_width", double(p.label_ids.size(1))}};
}

json numbers(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kDouble).contiguous();
  return {{"shape", tensor.sizes().vec()},
          {"values", std::vector<double>(flat.const_data_ptr<double>(),
                                         flat.const_data_ptr<double>() + flat.numel())}};
}

gradus::GenerationOptions generation(const json& options) {
  return gradus::GenerationConfig::from_json(options, "the job").options;
}

json answer(const json& job) {
  const auto args = gradus::Seq2SeqTrainingArguments::from_json(job.at("args"));
  const auto task =
      job.at("task") == "causal_lm" ? gradus::ModelTask::causal_lm : gradus::ModelTask::seq2seq_lm;
  gradus::Seq2SeqTrainer trainer(
      {.model = gradus::model_from_pretrained(task, job.at("folder").get<std::string>()),
       .args = args,
       .data_collator = gradus::default_data_collator,
       .train_dataset = dataset(job.at("train")),
       .eval_dataset = eval_sets(job.at("eval")),
       .compute_metrics = summary});
  trainer.train();
  const auto metrics = trainer.evaluate({}, {}, "check", generation(job.at("evaluate")));
  const auto found =
      trainer.predict(dataset(job.at("test")), {}, "test", generation(job.at("predict")));
  trainer.save_model();
  return {{"log_history", trainer.state().log_history},
          {"evaluate", metrics},
          {"metrics", found.metrics},
          {"predictions", numbers(found.prediction_parts.at(0))},
          {"labels", numbers(found.label_ids)}};
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "seq2seq_tool", answer);
}
