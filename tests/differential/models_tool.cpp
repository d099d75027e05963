// Answers tests/differential/models_test.py and others: one JSON request on stdin, one JSON answer
// on stdout. A list of requests gives a list of answers; one that failed has "error" and "text".
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>

#include <iostream>
#include <iterator>
#include <map>

namespace {

using gradus::ModelTask;
using nlohmann::json;
using torch::Tensor;

void append_numbers(const json& value, std::vector<double>& numbers) {
  if (value.is_array())
    for (const auto& item : value) append_numbers(item, numbers);
  else
    numbers.push_back(value.get<double>());
}

/// Nested lists of one shape; whole numbers throughout become int64, else float32.
Tensor to_tensor(const json& values) {
  std::vector<int64_t> shape;
  const auto* first = &values;
  for (; first->is_array(); first = &first->at(0))
    shape.push_back(static_cast<int64_t>(first->size()));
  std::vector<double> numbers;
  append_numbers(values, numbers);
  return torch::tensor(numbers, torch::kDouble)
      .view(shape)
      .to(first->is_number_float() ? torch::kFloat : torch::kLong);
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
  const std::map<std::string, ModelTask> tasks = {
      {"causal_lm", ModelTask::causal_lm},
      {"masked_lm", ModelTask::masked_lm},
      {"sequence_classification", ModelTask::sequence_classification},
      {"token_classification", ModelTask::token_classification},
      {"question_answering", ModelTask::question_answering},
      {"seq2seq_lm", ModelTask::seq2seq_lm},
      {"text_encoding", ModelTask::text_encoding},
      {"base", ModelTask::base}};
  return tasks.at(name);
}

/// One pass forward and back in evaluation mode (no dropout): the loss, and every gradient in the
/// file asked for.
json trained(gradus::PreTrainedModel& model, const json& job) {
  gradus::ForwardOptions options;
  options.need_logits = job.value("need_logits", true);
  if (job.contains("num_items_in_batch"))
    options.num_items_in_batch = torch::tensor(job["num_items_in_batch"].get<int64_t>());
  model.zero_grad();
  const auto loss = model.forward(to_batch(job.at("inputs")), options).loss();
  loss.backward();
  gradus::NamedTensors gradients;
  for (const auto& [name, parameter] : gradus::trainable_parameters(model))
    if (parameter.grad().defined()) gradients.emplace_back(name, parameter.grad());
  gradus::write_safetensors(job.at("file").get<std::string>(), gradients);
  return loss.item<double>();
}

json answer(const json& request) {
  const auto task = task_of(request.at("task"));
  gradus::PretrainedOptions loading;
  if (request.contains("dtype")) loading.dtype = gradus::dtype_named(request["dtype"]);
  const auto model =
      request.contains("config")
          ? gradus::model_from_config(task, request["config"])
          : gradus::model_from_pretrained(task, request.at("folder").get<std::string>(), loading);
  model->eval();
  json report;
  if (request.value("report", false)) {
    const auto loaded = (loading.dtype = model->dtype(),
                         model->load_weights(request.at("folder").get<std::string>(), loading));
    report = {{"missing", loaded.missing}, {"unexpected", loaded.unexpected}};
  }
  json reply = {{"outputs", json::array()}, {"generated", json::array()}, {"report", report}};
  for (const auto& inputs : request.value("forward", json::array())) {
    torch::NoGradGuard no_grad;
    json outputs;
    for (const auto& [name, tensor] : model->forward(to_batch(inputs)))
      outputs[name] = flat<float>(tensor.to(torch::kFloat));
    reply["outputs"].push_back(outputs);
  }
  for (const auto& job : request.value("train", json::array()))
    reply["losses"].push_back(trained(*model, job));
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
  if (request.contains("save"))
    model->save_pretrained(request["save"].get<std::string>(),
                           request.value("max_shard_size", "50GB"));
  return reply;
}

json answer_or_error(const json& request) try {
  return answer(request);
} catch (const gradus::Error& error) {
  return {{"error", error.id()}, {"text", error.what()}};
}

}  // namespace

int main() try {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto request = gradus::parse_json(text);
  json reply = json::array();
  if (!request.is_array())
    reply = answer(request);
  else
    for (const auto& one : request) reply.push_back(answer_or_error(one));
  std::cout << gradus::dump_json(reply) << '\n';
  return 0;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
