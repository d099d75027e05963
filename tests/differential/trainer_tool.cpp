// trainer_tool JOBS.json ANSWERS.json: trains every run of the first file and writes what happened.
// Answers trainer_test.py.
//
// A run is {"args", "model": "regression" | "classifier" | "tokens", "parameters", "dropout",
// "train": {column: values, "lengths"}, "eval": the same or
// {"sets": {name: data}}, "test", "stream": ["train", …], "sized": bool, "metrics": "whole" |
// "batched", "early_stopping", "control": [[event, occurrence, flag]], "loss_func", "model_init",
// "preprocess", "optimizer": {"optim", "groups": [{"names", "lr", "weight_decay"}]}, "calls"};
// "calls" are what is done, in order:
// {"do": "train" | "evaluate" | "predict" | "save_metrics" | "save_state", …}. A result is
// {"log_history", "events", "state", "parameters", "calls"}.
#include <gradus/core/error.h>
#include <gradus/data/dataset.h>
#include <gradus/optim/factory.h>
#include <gradus/train/callbacks.h>
#include <gradus/train/trainer.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "../event_recorder.h"
#include "../json_tensor.h"
#include "answer_jobs.h"

using gradus::testing::tensor_of;
using nlohmann::json;

namespace {

void set_values(torch::Tensor parameter, const json& values) {
  const torch::NoGradGuard no_grad;
  parameter.copy_(tensor_of(values, torch::kFloat));
}

torch::nn::Linear linear_of(const json& parameters, const std::string& name) {
  const auto& weight = parameters.at(name + ".weight");
  torch::nn::Linear linear(int64_t(weight[0].size()), int64_t(weight.size()));
  set_values(linear->weight, weight);
  set_values(linear->bias, parameters.at(name + ".bias"));
  return linear;
}

// y = a x + b with mean squared error, each row with its weight where there are weights.
class Regression : public gradus::Model {
 public:
  explicit Regression(const json& parameters)
      : a_(register_parameter("a", tensor_of(parameters.at("a"), torch::kFloat))),
        b_(register_parameter("b", tensor_of(parameters.at("b"), torch::kFloat))) {}
  std::vector<std::string> input_names() const override { return {"x", "labels", "weights"}; }
  std::string main_input_name() const override { return "x"; }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = inputs["x"] * a_ + b_;
    gradus::ModelOutput out;
    if (inputs.contains("weights"))
      out.set("loss", (inputs["weights"] * (y - inputs["labels"]).square()).mean());
    else if (inputs.contains("labels"))
      out.set("loss", torch::mse_loss(y, inputs["labels"]));
    out.set("logits", y);
    return out;
  }

 private:
  torch::Tensor a_, b_;
};

// Two linear layers with ReLU and dropout between, cross entropy.
class Classifier : public gradus::Model {
 public:
  Classifier(const json& parameters, double dropout)
      : dropout_(dropout),
        l1_(register_module("l1", linear_of(parameters, "l1"))),
        l2_(register_module("l2", linear_of(parameters, "l2"))) {}
  std::vector<std::string> input_names() const override { return {"x", "labels"}; }
  std::string main_input_name() const override { return "x"; }
  gradus::ModelOutput forward(const gradus::Batch& inputs, const gradus::ForwardOptions&) override {
    const auto y = l2_->forward(
        torch::dropout(torch::relu(l1_->forward(inputs["x"])), dropout_, is_training()));
    gradus::ModelOutput out;
    if (inputs.contains("labels")) out.set("loss", torch::cross_entropy_loss(y, inputs["labels"]));
    out.set("logits", y);
    return out;
  }

 private:
  double dropout_;
  torch::nn::Linear l1_, l2_;
};

// A label for every token; the loss is divided by num_items_in_batch, and there is a second output.
class Tokens : public gradus::Model {
 public:
  explicit Tokens(const json& parameters)
      : emb_(register_module("emb",
                             torch::nn::Embedding(int64_t(parameters.at("emb.weight").size()),
                                                  int64_t(parameters["emb.weight"][0].size())))),
        out_(register_module("out", linear_of(parameters, "out"))) {
    set_values(emb_->weight, parameters["emb.weight"]);
  }
  std::vector<std::string> input_names() const override {
    return {"input_ids", "attention_mask", "labels"};
  }
  bool accepts_loss_kwargs() const override { return true; }
  gradus::ModelOutput forward(const gradus::Batch& inputs,
                              const gradus::ForwardOptions& options) override {
    const auto hidden = emb_->forward(inputs["input_ids"]);
    const auto y = torch::linear(hidden, out_->weight,
                                 out_->bias);  // as in Python; the C++ module adds the bias by
                                               // itself, which rounds twice in bfloat16
    gradus::ModelOutput out;
    if (inputs.contains("labels")) {
      const bool given = options.num_items_in_batch.has_value();
      auto loss = torch::cross_entropy_loss(y.flatten(0, 1), inputs["labels"].flatten(), {},
                                            given ? at::Reduction::Sum : at::Reduction::Mean);
      out.set("loss", given ? loss / *options.num_items_in_batch : loss);
    }
    out.set("logits", y);
    out.set("hidden", hidden.mean(-1));
    return out;
  }

 private:
  torch::nn::Embedding emb_;
  torch::nn::Linear out_;
};

// The rows of a data set, from front to back only.
class Stream : public gradus::IterableDataset {
 public:
  Stream(std::shared_ptr<gradus::Dataset> rows, bool sized)
      : rows_(std::move(rows)), sized_(sized) {}
  std::optional<gradus::Example> next() override {
    return at_ < rows_->size() ? std::optional(rows_->get(at_++)) : std::nullopt;
  }
  void reset(int64_t) override { at_ = 0; }
  std::optional<int64_t> size() const override {
    return sized_ ? std::optional(rows_->size()) : std::nullopt;
  }

 private:
  std::shared_ptr<gradus::Dataset> rows_;
  bool sized_;
  int64_t at_ = 0;
};

std::vector<double> numbers(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().to(torch::kDouble).contiguous().flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

json parts_of(const gradus::TensorList& parts) {
  auto all = json::array();
  for (const auto& part : parts)
    all.push_back({{"shape", part.sizes().vec()}, {"values", numbers(part)}});
  return all;
}

// Of squares: nothing cancels, so that small differences stay small.
// In the order in which the Python side adds.
double mean_of(const torch::Tensor& tensor) {
  const auto values = tensor.to(torch::kDouble).contiguous();
  double sum = 0;
  for (int64_t i = 0; i < values.numel(); ++i)
    sum += values.const_data_ptr<double>()[i] * values.const_data_ptr<double>()[i];
  return sum / double(values.numel());
}

// All numbers of the batches in one row.
torch::Tensor flat(const gradus::TensorList& batches) {
  gradus::TensorList rows;
  for (const auto& batch : batches) rows.push_back(batch.flatten());
  return torch::cat(rows);
}

gradus::Metrics whole_metrics(const gradus::EvalPrediction& p) {
  gradus::Metrics metrics;
  if (p.prediction_batches.empty()) {
    metrics = {{"mean", mean_of(p.prediction_parts.at(0))},
               {"eval_labels", mean_of(p.label_parts.at(0))},
               {"outputs", double(p.prediction_parts.size())}};
  } else {
    double sum = 0;
    for (const auto& batch : p.prediction_batches) sum += mean_of(batch.at(0));
    metrics = {{"sum_of_means", sum},
               {"batches", double(p.prediction_batches.size())},
               {"eval_labels", mean_of(p.label_batches.back().at(0))}};
  }
  const auto inputs = p.input_batches.empty() ? p.inputs : flat(p.input_batches);
  const auto losses = p.loss_batches.empty() ? p.losses : flat(p.loss_batches);
  if (inputs.defined()) metrics["inputs"] = mean_of(inputs);
  if (!p.input_batches.empty()) metrics["input_batches"] = double(p.input_batches.size());
  if (losses.defined())
    metrics["losses"] = mean_of(losses), metrics["loss_rows"] = double(losses.numel());
  return metrics;
}

gradus::ComputeMetrics batched_metrics() {
  return [sum = 0.0, batches = 0.0](const gradus::EvalPrediction& p,
                                    bool compute_result) mutable -> gradus::Metrics {
    sum += mean_of(p.prediction_parts.at(0)) + (p.inputs.defined() ? mean_of(p.inputs) : 0) +
           (p.losses.defined() ? double(p.losses.numel()) : 0);
    batches += 1;
    if (!compute_result) return {{"unfinished", batches}};
    return {{"sum", std::exchange(sum, 0)}, {"batches", std::exchange(batches, 0)}};
  };
}

gradus::Event event_of(const std::string& name) {
  for (int i = 0; i < gradus::kEventCount; ++i)
    if (gradus::event_name(gradus::Event(i)) == name) return gradus::Event(i);
  throw std::runtime_error("no event " + name);
}

// Sets one flag at the n-th occurrence of an event.
std::shared_ptr<gradus::TrainerCallback> flag_setter(const json& what) {
  const std::string flag = what.at(2);
  return gradus::make_callback(
      event_of(what.at(0)), gradus::every(1),
      [n = what.at(1).get<int>(), seen = 0, flag](const gradus::CallbackContext&,
                                                  gradus::TrainerControl& control) mutable {
        if (++seen != n) return;
        (flag == "should_log"          ? control.should_log
         : flag == "should_evaluate"   ? control.should_evaluate
         : flag == "should_save"       ? control.should_save
         : flag == "should_epoch_stop" ? control.should_epoch_stop
                                       : control.should_training_stop) = true;
      });
}

std::shared_ptr<gradus::Model> model_of(const json& run) {
  if (run.at("model") == "classifier")
    return std::make_shared<Classifier>(run.at("parameters"), run.value("dropout", 0.0));
  if (run.at("model") == "tokens") return std::make_shared<Tokens>(run.at("parameters"));
  return std::make_shared<Regression>(run.at("parameters"));
}

gradus::DatasetRef rows_of(const json& run, const std::string& part, const json& data) {
  const bool whole_labels = run.at("model") != "regression";
  std::vector<std::pair<std::string, torch::Tensor>> columns;
  for (const char* name : {"x", "input_ids", "attention_mask", "labels", "weights", "extra"}) {
    const auto text = std::string(name);
    const bool whole =
        text == "input_ids" || text == "attention_mask" || (text == "labels" && whole_labels);
    if (data.contains(name))
      columns.emplace_back(name, tensor_of(data[name], whole ? torch::kLong : torch::kFloat));
  }
  auto rows = gradus::from_tensors(columns);
  if (data.contains("lengths")) {
    std::vector<gradus::Example> examples;  // input_ids have the wanted length and nothing else;
                                            // the model does not take them
    for (int64_t i = 0; i < rows->size(); ++i) {
      examples.push_back(rows->get(i));
      examples.back().set("input_ids",
                          std::vector<int64_t>(data["lengths"][size_t(i)].get<size_t>(), 0));
    }
    rows = gradus::from_examples(std::move(examples));
  }
  for (const auto& streamed : run.value("stream", json::array()))
    if (streamed == part) return std::make_shared<Stream>(rows, run.value("sized", false));
  return rows;
}

gradus::EvalDatasets eval_sets_of(const json& run, const json& data) {
  if (!data.contains("sets")) return rows_of(run, "eval", data);
  gradus::EvalDatasets::Named named;
  for (const auto& set : data["sets"])
    named.emplace_back(set[0].get<std::string>(), rows_of(run, "eval", set[1]));
  return named;
}

gradus::TrainerOptions options_of(const json& run) {
  gradus::TrainerOptions options{.args = gradus::TrainingArguments::from_json(run.at("args")),
                                 .train_dataset = rows_of(run, "train", run.at("train"))};
  if (run.value("model_init", false))
    options.model_init = [run] { return model_of(run); };
  else
    options.model = model_of(run);
  if (run.contains("eval")) options.eval_dataset = eval_sets_of(run, run["eval"]);
  if (run.value("metrics", "") == "whole") options.compute_metrics = whole_metrics;
  if (run.value("metrics", "") == "batched") options.compute_metrics = batched_metrics();
  if (run.value("preprocess", false))
    options.preprocess_logits_for_metrics =
        [](const gradus::TensorList& logits,
           const gradus::TensorList& labels) -> gradus::TensorList {
      return {logits.at(0) * 2 + double(labels.size())};
    };
  if (run.value("loss_func", false))
    options.compute_loss_func = [](const gradus::ModelOutput& outputs, const torch::Tensor& labels,
                                   const std::optional<torch::Tensor>& items) {
      const auto loss = (outputs["logits"] - labels).square().sum();
      return items ? loss / *items : loss;
    };
  if (run.contains("optimizer")) {
    std::vector<gradus::ParamGroupInit> groups;
    for (const auto& group : run["optimizer"].at("groups")) {
      groups.push_back({.lr = group.at("lr").get<double>(),
                        .weight_decay = group.at("weight_decay").get<double>()});
      for (const auto& item : options.model->named_parameters())
        for (const auto& name : group.at("names"))
          if (name == item.key()) groups.back().params.push_back(item.value());
    }
    options.optimizers.optimizer =
        gradus::make_optimizer(run["optimizer"].at("optim"), std::move(groups),
                               {.learning_rate = options.args.learning_rate});
  }
  if (run.contains("early_stopping"))
    options.callbacks.push_back(
        std::make_shared<gradus::EarlyStoppingCallback>(run["early_stopping"].get<int64_t>()));
  for (const auto& what : run.value("control", json::array()))
    options.callbacks.push_back(flag_setter(what));
  return options;
}

json do_call(gradus::Trainer& trainer, const json& run, const json& call,
             std::vector<gradus::Metrics>& metrics) {
  const std::string what = call.at("do");
  json result = json::object();
  metrics.emplace_back();
  std::optional<gradus::Names> ignore_keys;
  if (call.contains("ignore_keys")) ignore_keys = call["ignore_keys"].get<gradus::Names>();
  if (what == "train") {
    const auto done = trainer.train(call.contains("resume")
                                        ? gradus::Resume::from(call["resume"].get<std::string>())
                                        : gradus::Resume::none());
    result = {{"training_loss", done.training_loss}, {"global_step", done.global_step}};
    metrics.back() = done.metrics;
  } else if (what == "evaluate") {
    metrics.back() = trainer.evaluate(
        call.contains("data") ? eval_sets_of(run, run.at(call["data"].get<std::string>()))
                              : gradus::EvalDatasets(),
        ignore_keys, call.at("prefix"));
  } else if (what == "predict") {
    const auto found =
        trainer.predict(rows_of(run, "test", run.at("test")), ignore_keys, call.at("prefix"));
    result = {{"predictions", parts_of(found.prediction_parts)},
              {"labels", parts_of(found.label_parts)}};
    for (const auto& batch : found.prediction_batches)
      result["predictions"].push_back(parts_of(batch));
    for (const auto& batch : found.label_batches) result["labels"].push_back(parts_of(batch));
    metrics.back() = found.metrics;
  } else if (what == "save_metrics") {
    trainer.save_metrics(call.at("split"), metrics.at(call.at("of").get<size_t>()),
                         call.at("combined"));
  } else if (what == "save_state") {
    trainer.save_state();
  }
  result["metrics"] = metrics.back();
  return result;
}

json train_one(const json& run) {
  auto options = options_of(run);
  const auto recorder = std::make_shared<gradus::testing::EventRecorder>();
  options.callbacks.push_back(recorder);
  gradus::Trainer trainer(std::move(options));
  std::vector<gradus::Metrics> metrics;
  auto calls = json::array();
  for (const auto& call : run.value("calls", json::parse(R"([{"do": "train"}])")))
    calls.push_back(do_call(trainer, run, call, metrics));
  json parameters = json::object();
  for (const auto& item : trainer.model().state_dict())
    parameters[item.key()] = numbers(item.value());
  auto flags = json::array();
  for (const auto& c : recorder->controls)
    flags.push_back({c.should_training_stop, c.should_epoch_stop, c.should_save, c.should_evaluate,
                     c.should_log});
  auto state = trainer.state().to_json();
  state.erase("log_history");
  return {{"log_history", trainer.state().log_history},
          {"events", recorder->events},
          {"controls", flags},
          {"state", state},
          {"parameters", parameters},
          {"calls", calls}};
}

// A run that both sides refuse is equal, too.
json run_one(const json& run) try { return train_one(run); } catch (const gradus::Error& error) {
  return {{"error", error.what()}};
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::testing::answer_jobs(argc, argv, "trainer_tool", run_one);
}
