// Answers tests/differential/models_test.py: one JSON request on stdin, one JSON answer on stdout.
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>

#include <iostream>
#include <iterator>
#include <map>

namespace {

using gradus::ModelTask;
using nlohmann::json;
using torch::Tensor;

Tensor to_tensor(const json& rows) {
  const auto count = static_cast<int64_t>(rows.size()), tokens = static_cast<int64_t>(rows.at(0).size());
  std::vector<int64_t> values;
  for (const auto& row : rows)
    for (const auto& value : row) values.push_back(value.get<int64_t>());
  return torch::tensor(values, torch::kLong).view({count, tokens});
}

gradus::Batch to_batch(const json& inputs) {
  gradus::Batch batch;
  for (const auto& [name, rows] : inputs.items()) batch.set(name, to_tensor(rows));
  return batch;
}

template <class T>
json flat(const Tensor& tensor) {
  const auto values = tensor.contiguous();
  return std::vector<T>(values.const_data_ptr<T>(), values.const_data_ptr<T>() + values.numel());
}

json to_rows(const Tensor& tensor) {
  json rows = json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) rows.push_back(flat<int64_t>(tensor[i]));
  return rows;
}

ModelTask task_of(const std::string& name) {
  const std::map<std::string, ModelTask> tasks = {{"causal_lm", ModelTask::causal_lm},
                                                  {"masked_lm", ModelTask::masked_lm},
                                                  {"sequence_classification", ModelTask::sequence_classification},
                                                  {"token_classification", ModelTask::token_classification},
                                                  {"question_answering", ModelTask::question_answering},
                                                  {"seq2seq_lm", ModelTask::seq2seq_lm},
                                                  {"text_encoding", ModelTask::text_encoding},
                                                  {"base", ModelTask::base}};
  return tasks.at(name);
}

json answer(const json& request) {
  const auto task = task_of(request.at("task"));
  const auto model = request.contains("config") ? gradus::model_from_config(task, request["config"])
                                                : gradus::model_from_pretrained(task, request.at("folder").get<std::string>());
  model->eval();
  json reply = {{"outputs", json::array()}, {"generated", json::array()}};
  for (const auto& inputs : request.value("forward", json::array())) {
    torch::NoGradGuard no_grad;
    json outputs;
    for (const auto& [name, tensor] : model->forward(to_batch(inputs))) outputs[name] = flat<float>(tensor);
    reply["outputs"].push_back(outputs);
  }
  for (const auto& job : request.value("generate", json::array())) {
    const auto options = gradus::GenerationConfig::from_json(job.at("options")).options;
    if (job.contains("seed")) torch::manual_seed(job["seed"].get<uint64_t>());
    try {
      reply["generated"].push_back(to_rows(model->generate(to_batch(job.at("inputs")), options)));
    } catch (const gradus::Error& error) {
      if (!job.value("may_fail", false)) throw;
      reply["generated"].push_back(error.id());
    }
  }
  if (request.contains("save")) model->save_pretrained(request["save"].get<std::string>(), request.value("max_shard_size", "50GB"));
  return reply;
}

}  // namespace

int main() try {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  std::cout << gradus::dump_json(answer(gradus::parse_json(text))) << '\n';
  return 0;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
