// encoders_tool JOBS.json ANSWERS.json: answers minilm_test.py, encoder_training_test.py and
// seq2seq_training_test.py.
//
// A job is {"embed": sentences, "folder"} -> {"embeddings"}, or {"train": rows, "eval": rows,
// "folder", "task", "args"} -> {"log_history", "global_step"}. A row has "text" and "label", or
// numbers and lists of numbers as the model takes them.
#include <gradus/data/collators.h>
#include <gradus/data/dataset.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/train/trainer.h>

#include <map>

#include "answer_jobs.h"

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxLength = 32;

gradus::Example to_example(const json& row, const gradus::Tokenizer* tokenizer) {
  gradus::Example example;
  if (row.contains("text"))
    example = tokenizer
                  ->encode(row.at("text").get<std::string>(),
                           {.max_length = kMaxLength, .truncation = true})
                  .example();
  for (const auto& [name, value] : row.items()) {
    if (name == "text") continue;
    if (value.is_array())
      example.set(name, value.get<std::vector<int64_t>>());
    else
      example.set(name, value.get<int64_t>());
  }
  return example;
}

gradus::Metrics accuracy(const gradus::EvalPrediction& p) {
  return {{"accuracy",
           p.predictions.argmax(-1).eq(p.label_ids).to(torch::kDouble).mean().item<double>()}};
}

// Mean of the tokens' vectors without padding, scaled to length 1: what all-MiniLM's modules.json
// says.
json embed(const json& job) {
  const fs::path folder = job.at("folder").get<std::string>();
  const auto tokenizer = gradus::Tokenizer::from_pretrained(folder);
  gradus::PretrainedOptions strict;
  strict.strict = true;
  const auto model = gradus::AutoModel::from_pretrained(folder, strict);
  const torch::NoGradGuard no_grad;
  const gradus::DataCollatorWithPadding collate({.tokenizer = tokenizer});
  json embeddings = json::array();
  std::vector<gradus::Example> rows;
  for (const auto& sentence : job.at("embed"))
    rows.push_back(
        tokenizer->encode(sentence.get<std::string>(), {.max_length = 256, .truncation = true})
            .example());
  for (size_t first = 0; first < rows.size(); first += 8) {
    const auto batch = collate(
        {rows.begin() + int64_t(first), rows.begin() + int64_t(std::min(first + 8, rows.size()))});
    const auto hidden = model->forward(batch)["last_hidden_state"];
    const auto mask = batch["attention_mask"].unsqueeze(-1).to(torch::kFloat);
    const auto mean = (hidden * mask).sum(1) / mask.sum(1).clamp_min(1e-9);
    const auto unit = (mean / mean.norm(2, 1, true).clamp_min(1e-12)).contiguous();
    for (int64_t i = 0; i < unit.size(0); ++i)
      embeddings.push_back(
          std::vector<float>(unit[i].data_ptr<float>(), unit[i].data_ptr<float>() + unit.size(1)));
  }
  return {{"embeddings", embeddings}};
}

json train(const json& job) {
  static const std::map<std::string, gradus::ModelTask> tasks = {
      {"masked_lm", gradus::ModelTask::masked_lm},
      {"seq2seq_lm", gradus::ModelTask::seq2seq_lm},
      {"sequence_classification", gradus::ModelTask::sequence_classification},
      {"token_classification", gradus::ModelTask::token_classification},
      {"question_answering", gradus::ModelTask::question_answering}};
  const fs::path folder = job.at("folder").get<std::string>();
  const auto task = tasks.at(job.at("task"));
  std::shared_ptr<gradus::Tokenizer> tokenizer;
  if (fs::exists(folder / "tokenizer.json")) tokenizer = gradus::Tokenizer::from_pretrained(folder);
  const auto dataset = [&](const json& rows) {
    std::vector<gradus::Example> examples;
    for (const auto& row : rows) examples.push_back(to_example(row, tokenizer.get()));
    return gradus::from_examples(std::move(examples));
  };
  gradus::TrainerOptions options;
  options.model = gradus::model_from_pretrained(task, folder);
  options.args = gradus::TrainingArguments::from_json(job.at("args"));
  options.train_dataset = dataset(job.at("train"));
  options.eval_dataset = dataset(job.at("eval"));
  if (tokenizer)
    options.data_collator = gradus::DataCollatorWithPadding({.tokenizer = tokenizer});
  else
    options.data_collator = gradus::default_data_collator;
  if (task == gradus::ModelTask::sequence_classification) options.compute_metrics = accuracy;
  gradus::Trainer trainer(std::move(options));
  const auto result = trainer.train();
  return {{"log_history", trainer.state().log_history}, {"global_step", result.global_step}};
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "encoders_tool", [](const json& job) {
    return job.contains("embed") ? embed(job) : train(job);
  });
}
