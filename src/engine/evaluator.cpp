#include <gradus/engine/eval_accumulator.h>
#include <gradus/engine/evaluator.h>

#include <algorithm>

#include "engine/mean_loss.h"

namespace gradus {
namespace {

torch::Tensor only_part(const TensorList& parts) {
  return parts.size() == 1 ? parts.front() : torch::Tensor();
}

// The only part of each batch.
TensorList only_parts(const EvalAccumulator& accumulator) {
  TensorList found;
  for (const auto& batch : accumulator.batches()) found.push_back(only_part(batch));
  return found;
}

// `rows` with more of them, or wider ones. What is added is -100.
torch::Tensor padded(const torch::Tensor& rows, int64_t count, int64_t width) {
  std::vector<int64_t> margins(size_t(rows.dim()) * 2);  // from the last dimension to the first
  margins[margins.size() - 1] = count - rows.size(0);
  if (rows.dim() >= 2) margins[margins.size() - 3] = width - rows.size(1);
  return torch::constant_pad_nd(rows, margins, -100);
}

// Count and width of the rows of every process: a row of the result each.
torch::Tensor sizes_everywhere(Strategy& strategy, const torch::Tensor& rows) {
  const auto own = torch::tensor({rows.size(0), rows.dim() >= 2 ? rows.size(1) : 1}, torch::kLong);
  return strategy.gather(own.to(rows.device()).unsqueeze(0)).cpu();
}

// `rows` as wide as the widest of all processes.
torch::Tensor widened(Strategy& strategy, torch::Tensor rows) {
  if (rows.dim() < 2) return rows;
  return padded(rows, rows.size(0),
                sizes_everywhere(strategy, rows).select(1, 1).max().item<int64_t>());
}

// The rows of all processes. Rows of one process are equally wide; the widest decide.
torch::Tensor gather_rows(Strategy& strategy, torch::Tensor rows) {
  if (rows.dim() == 0) rows = rows.unsqueeze(0);
  const auto sizes = sizes_everywhere(strategy, rows);
  const auto most = sizes.select(1, 0).max().item<int64_t>();
  const auto all =
      strategy.gather(padded(rows, most, sizes.select(1, 1).max().item<int64_t>()).contiguous());
  if (sizes.select(1, 0).min().item<int64_t>() == most) return all;
  TensorList parts;
  for (int64_t i = 0; i < sizes.size(0); ++i)
    parts.push_back(all.narrow(0, i * most, sizes[i][0].item<int64_t>()));
  return torch::cat(parts);
}

// How many rows all processes together take in a full step.
int64_t rows_of_a_step(const DataLoader& loader) {
  const auto* options = loader.options();
  if (options == nullptr) return 0;
  return options->batch_size * (options->shard.split_batches ? 1 : options->shard.world);
}

Metrics with_prefix(const Metrics& metrics, const std::string& prefix) {
  Metrics renamed;
  for (const auto& [key, value] : metrics)
    renamed[key.starts_with(prefix + "_") ? key : prefix + "_" + key] = value;
  return renamed;
}

}  // namespace

// What one batch gave.
struct Evaluator::Outputs {
  torch::Tensor loss;         // one per process; undefined without labels
  torch::Tensor loss_weight;  // for how many rows or tokens each of them counts
  TensorList losses, predictions, labels, inputs;
  Batch input_columns;

  EvalPrediction as_prediction() const {
    return {.predictions = only_part(predictions),
            .label_ids = only_part(labels),
            .inputs = only_part(inputs),
            .losses = only_part(losses),
            .prediction_parts = predictions,
            .label_parts = labels,
            .input_columns = input_columns};
  }
};

// What all batches gave.
struct Evaluator::Collected {
  EvalAccumulator losses, predictions, labels, inputs;

  void add(const Outputs& batch, bool keep_predictions) {
    if (!batch.losses.empty()) losses.add(batch.losses);
    if (!keep_predictions) return;
    if (!batch.inputs.empty()) inputs.add(batch.inputs);
    if (!batch.predictions.empty()) predictions.add(batch.predictions);
    if (!batch.labels.empty()) labels.add(batch.labels);
  }
  void to_cpu() {
    for (auto* each : {&losses, &predictions, &labels, &inputs}) each->to_cpu();
  }
  EvalPrediction joined() const {
    EvalPrediction all;
    all.prediction_parts = predictions.join();
    all.label_parts = labels.join();
    all.predictions = only_part(all.prediction_parts);
    all.label_ids = only_part(all.label_parts);
    all.losses = only_part(losses.join());
    all.inputs = only_part(inputs.join());
    return all;
  }
  EvalPrediction apart() const {
    EvalPrediction all;
    all.prediction_batches = predictions.batches();
    all.label_batches = labels.batches();
    all.loss_batches = only_parts(losses);
    all.input_batches = only_parts(inputs);
    return all;
  }
};

Evaluator::Evaluator(EvaluatorOptions options) : options_(std::move(options)) {
  if (!options_.rows_of_loss)
    options_.rows_of_loss = [](const Batch& batch) { return batch.rows(); };
}

bool Evaluator::is_shared() const {
  return options_.strategy != nullptr && options_.strategy->world_size() > 1;
}

bool Evaluator::includes(const char* what) const {
  const auto& names = options_.include_for_metrics;
  return std::find(names.begin(), names.end(), what) != names.end();
}

Evaluator::Outputs Evaluator::outputs_of(const Batch& batch, PredictionStep step) const {
  Outputs outputs;
  if (step.loss) {
    const auto rows = options_.rows_of_loss(batch);
    outputs.loss = step.loss->reshape({1});
    outputs.loss_weight = torch::tensor(
        {options_.tokens_of_loss ? options_.tokens_of_loss(batch) : rows}, torch::kLong);
    if (includes("loss")) outputs.losses = {step.loss->repeat({rows})};
  }
  if (is_shared()) {
    for (auto* parts : {&step.labels, &step.logits})
      for (auto& part : *parts) part = widened(*options_.strategy, part);
  }
  if (includes("inputs")) {
    if (const auto* input = batch.find(options_.main_input_name)) outputs.inputs = {*input};
    if (options_.batch_eval_metrics) outputs.input_columns = batch;
  }
  outputs.predictions = !step.logits.empty() && options_.preprocess_logits
                            ? options_.preprocess_logits(step.logits, step.labels)
                            : std::move(step.logits);
  outputs.labels = std::move(step.labels);
  return outputs;
}

// The one place where an evaluation needs the other processes. `step_rows`: how many rows they have
// together, without those that were repeated.
void Evaluator::gather(Outputs& outputs, std::optional<int64_t> step_rows,
                       int64_t full_step) const {
  if (!is_shared()) return;
  auto* strategy = options_.strategy;
  if (outputs.loss.defined()) {
    outputs.loss = strategy->gather(outputs.loss);
    outputs.loss_weight = strategy->gather(outputs.loss_weight.to(outputs.loss.device())).cpu();
    if (step_rows && options_.batch_size && !options_.tokens_of_loss)
      cut_weights(outputs, *step_rows, full_step);
    if (!outputs.losses.empty())
      outputs.losses = {
          outputs.loss.repeat_interleave(outputs.loss_weight.to(outputs.loss.device()))};
  }
  for (auto* parts : {&outputs.predictions, &outputs.labels, &outputs.inputs})
    for (auto& part : *parts) {
      part = gather_rows(*strategy, part);
      if (step_rows && part.size(0) > *step_rows) part = part.narrow(0, 0, *step_rows);
    }
}

// transformers repeats each loss as often as a full batch has rows, and cuts the row of all of them
// to the rows of the last step: there the loss of a later process counts less, or not at all.
void Evaluator::cut_weights(Outputs& outputs, int64_t step_rows, int64_t full_step) const {
  const auto full = *options_.batch_size;
  for (int64_t i = 0; i < outputs.loss.size(0); ++i)
    outputs.loss_weight[i] =
        step_rows == full_step ? full : std::clamp<int64_t>(step_rows - i * full, 0, full);
}

EvalLoopOutput Evaluator::run(const DataLoader& loader,
                              const PredictionFunction& prediction_step) const {
  const auto& o = options_;
  Collected collected;
  MeanLoss loss;
  Metrics metrics;
  int64_t rows = 0, done = 0;
  const int64_t full_step = rows_of_a_step(loader);
  // accelerate's dispatcher cuts the last step also when it is full.
  const bool dispatches = loader.options() != nullptr && loader.options()->shard.dispatch;
  auto batches = loader.iterate(0);
  auto batch = batches.next();
  while (batch) {
    const auto step_rows = batches.step_rows();
    rows += step_rows.value_or(batch->rows());
    auto outputs = outputs_of(*batch, prediction_step(*batch));
    auto next = batches.next();
    gather(outputs, step_rows, dispatches && !next ? 0 : full_step);
    for (int64_t i = 0; outputs.loss.defined() && i < outputs.loss.size(0); ++i)
      loss.add(outputs.loss[i], outputs.loss_weight[i].item<int64_t>());
    collected.add(outputs, o.keep_predictions);
    if (o.after_batch) o.after_batch();
    ++done;

    if (o.batch_eval_metrics) {
      if (o.compute_metrics && !outputs.predictions.empty() && !outputs.labels.empty())
        metrics = o.compute_metrics(outputs.as_prediction(), /*compute_result=*/!next);
    } else if (o.eval_accumulation_steps && done % *o.eval_accumulation_steps == 0) {
      collected.to_cpu();
    }
    batch = std::move(next);
  }

  EvalLoopOutput output;
  output.num_samples = loader.num_examples().value_or(rows);
  if (output.num_samples == 0) output.num_samples = rows;
  output.prediction = o.eval_do_concat_batches ? collected.joined() : collected.apart();
  const bool whole = o.compute_metrics && !o.batch_eval_metrics;
  if (whole && !collected.predictions.empty() && !collected.labels.empty())
    metrics = o.compute_metrics(output.prediction);
  if (!loss.empty())
    metrics[o.metric_key_prefix + "_loss"] =
        o.tokens_of_loss ? loss.over_tokens() : loss.over_rows();
  output.metrics = with_prefix(metrics, o.metric_key_prefix);
  return output;
}

}  // namespace gradus
