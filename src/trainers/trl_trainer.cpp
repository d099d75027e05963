#include <gradus/core/error.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>
#include <gradus/distributed/process_group.h>
#include <gradus/models/backbone.h>
#include <gradus/trainers/trl_trainer.h>

#include <algorithm>
#include <cmath>

#include "trainers/metric_log.h"
#include "trainers/token_scores.h"
#include "trainers/trl_options.h"

namespace gradus {

namespace {

// The collator makes the model's inputs, so no column may be removed before it.
TrainerOptions with_all_columns(TrainerOptions options) {
  options.args.remove_unused_columns = false;
  if (options.args.elastic_order && options.args.world_size() > 1)
    throw Error("G-CONF-4", ErrorKind::usage,
                "elastic_order: trl's trainers share batches in their own way", "Leave it out.");
  return options;
}

constexpr int64_t kLengthStep = 64;  ///< Lengths of padded batches are multiples of it.

/// Whether every row (rows, tokens) of a mask in host memory is ones, then zeros.
bool is_right_padded(const torch::Tensor& mask) {
  if (!mask.is_cpu() || mask.dim() != 2 || mask.size(1) == 0) return false;
  const auto bits = mask.ne(0), before = bits.narrow(1, 0, mask.size(1) - 1);
  return bits.narrow(1, 1, mask.size(1) - 1).le(before).all().item<bool>();
}

}  // namespace

TrlTrainer::TrlTrainer(TrainerOptions options, nlohmann::ordered_json arguments)
    : Trainer(with_all_columns(options)),
      arguments_(std::move(arguments)),
      collator_(options.data_collator),
      train_dataset_(options.train_dataset),
      eval_dataset_(options.eval_dataset),
      group_(ProcessGroup::of_this_run(std::chrono::seconds(args().ddp_timeout))),
      metrics_(std::make_shared<MetricLog>(group_)) {
  if (options.processing_class)
    pad_token_id_ = options.processing_class->pad_token_id().value_or(0);
  add_callback(metrics_);
}

TrlTrainer::~TrlTrainer() = default;

Metrics TrlTrainer::evaluate(EvalDatasets eval_dataset, std::optional<Names> ignore_keys,
                             const std::string& metric_key_prefix) {
  if (!eval_dataset) eval_dataset = eval_dataset_;
  if (eval_dataset && !eval_dataset.is_named() && prepare_rows_ && !is_prepared(eval_dataset))
    eval_dataset = prepare_rows_(eval_dataset.single(), "eval_dataset");
  return Trainer::evaluate(std::move(eval_dataset), std::move(ignore_keys), metric_key_prefix);
}

bool TrlTrainer::is_prepared(const EvalDatasets& set) const {
  const auto is_it = [&](const DatasetRef& own) {
    return own.map_style() && own.map_style() == set.single().map_style();
  };
  return is_it(train_dataset_) || is_it(eval_dataset_.single()) ||
         std::ranges::any_of(eval_dataset_.named(),
                             [&](const auto& named) { return is_it(named.second); });
}

// In trl `log` adds them to the metrics, which are returned afterwards. Callbacks see them, too.
EvalLoopOutput TrlTrainer::evaluation_loop(const DataLoader& dataloader,
                                           const std::string& description,
                                           std::optional<bool> prediction_loss_only,
                                           std::optional<Names> ignore_keys,
                                           const std::string& metric_key_prefix) {
  Metrics left, found;
  metrics_->write(left, /*training=*/false);  // of an evaluation that was broken off
  last_batch_ = last_batch_of(dataloader);
  auto output = Trainer::evaluation_loop(dataloader, description, prediction_loss_only,
                                         std::move(ignore_keys), metric_key_prefix);
  metrics_->write(found, /*training=*/false);
  last_batch_ = {};
  if (description == "Evaluation") output.metrics.merge(found);
  return output;
}

void TrlTrainer::compute_columns(const PrepareRows& compute) {
  train_dataset_ = compute(train_dataset_, "train_dataset");
  eval_dataset_ = prepared_sets(eval_dataset_, compute);
}

TrlTrainer::LastBatch TrlTrainer::last_batch_of(const DataLoader& loader) const {
  const auto* options = loader.options();
  const auto rows = loader.num_examples(), batches = loader.size();
  if (!group_ || options == nullptr || options->drop_last || !rows || !batches) return {};
  const auto step = options->batch_size * (options->shard.split_batches ? 1 : group_->size());
  return {.batches_left = *batches, .processes = *rows % step};
}

DataLoader TrlTrainer::get_train_dataloader() {
  auto loader = Trainer::get_train_dataloader();
  training_batch_ = last_batch_of(loader);
  return loader;
}

// The Trainer of transformers takes a whole window from the loader before it computes the first
// batch, so accelerate sees the end of the pass in all of them. `epoch` is that of the last step.
bool TrlTrainer::is_in_last_window() const {
  const auto batches = training_batch_.batches_left;
  if (batches == 0) return false;
  const auto epoch = state().epoch;
  const auto done = std::llround((epoch - std::floor(epoch)) * double(batches)) % batches;
  return done + args().gradient_accumulation_steps >= batches;
}

// accelerate keeps as many of the gathered numbers as there are rows left, one of each process.
int64_t TrlTrainer::processes_that_count(bool training) const {
  if (training) return is_in_last_window() ? training_batch_.processes : 0;
  return last_batch_.batches_left == 0 ? last_batch_.processes : 0;
}

void TrlTrainer::note(const MetricBatch& batch, bool training) {
  metrics_->note(batch, training, processes_that_count(training));
}

torch::Tensor TrlTrainer::mean_over_processes(const torch::Tensor& value) const {
  if (!group_) return value;
  const auto all = torch::stack(group_->gather(value));
  const auto count = processes_that_count(model().is_training());
  return (count > 0 ? all.narrow(0, 0, std::min(count, all.size(0))) : all).mean(0);
}

ModelOutput TrlTrainer::run_for_scores(Model& model, const Batch& inputs,
                                       const torch::Tensor& labels, double temperature) {
  auto& asked = forward_options();
  if (!asked.need_logits) {
    if (!asked.token_scoring) asked.token_scoring.emplace();
    asked.token_scoring->labels = labels;
    asked.token_scoring->temperature = temperature;
  }
  auto outputs = run_model(model, inputs, model.is_training());
  asked.token_scoring.reset();
  return outputs;
}

TokenScores TrlTrainer::score_by_model(Model& model, const Batch& inputs,
                                       const torch::Tensor& labels,
                                       const TokenScoreOptions& options, ModelOutput& outputs) {
  outputs = run_for_scores(model, inputs, labels, options.temperature);
  return token_scores_in(outputs, labels, options);
}

// What the losses of this family read is never that of padding.
Batch TrlTrainer::batch_for_gpu(Batch inputs) const {
  if (model().is_training())
    for (const std::string prefix : {"", "KL_"}) pad_to_few_lengths(inputs, prefix);
  return Trainer::batch_for_gpu(std::move(inputs));
}

void TrlTrainer::pad_to_few_lengths(Batch& inputs, const std::string& prefix) const {
  const auto* mask = inputs.find(prefix + "attention_mask");
  if (mask == nullptr || !is_right_padded(*mask)) return;
  const auto width = mask->size(1);
  inputs.set(prefix + kIsRightPadded, torch::ones({}, torch::kBool));
  auto wanted = (width + kLengthStep - 1) / kLengthStep * kLengthStep;
  if (const auto longest = longest_input(model())) wanted = std::min(wanted, *longest);
  const std::vector<std::pair<std::string, int64_t>> columns = {{"input_ids", pad_token_id_},
                                                                {"attention_mask", 0},
                                                                {"completion_mask", 0},
                                                                {"labels", -100}};
  for (const auto& [name, filler] : columns)
    if (const auto* column = inputs.find(prefix + name);
        column != nullptr && column->dim() == 2 && column->size(1) == width && wanted > width)
      inputs.set(prefix + name, torch::constant_pad_nd(*column, {0, wanted - width}, filler));
}

Batch TrlTrainer::prepare_inputs(Batch inputs) const {
  auto prepared = Trainer::prepare_inputs(inputs);
  for (const auto& [name, value] : inputs)
    if (value.is_floating_point()) prepared.set(name, value.to(device()));
  return prepared;
}

PredictionStep TrlTrainer::prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                           const Names& ignore_keys) {
  --last_batch_.batches_left;
  if (inputs.contains("labels"))
    return Trainer::prediction_step(model, std::move(inputs), prediction_loss_only, ignore_keys);
  const torch::NoGradGuard no_grad;
  inputs = prepare_inputs(std::move(inputs));
  PredictionStep step;
  const auto precision = compute_loss_context_manager();
  const auto computed = compute_loss(model, inputs, std::nullopt);
  step.loss = computed.loss.detach().mean();
  if (prediction_loss_only) return step;
  step.logits = {computed.outputs["logits"].detach()};
  step.labels = {inputs[model.main_input_name()]};
  return step;
}

void TrlTrainer::log(Logs logs, std::optional<double> start_time) {
  metrics_->write(logs, model().is_training());
  Trainer::log(std::move(logs), start_time);
}

DataLoaderOptions TrlTrainer::train_dataloader_options() {
  auto options = Trainer::train_dataloader_options();
  options.dataset = train_dataset_;
  return options;
}

nlohmann::ordered_json TrlTrainer::arguments_to_save() const {
  auto all = arguments_;
  const auto common = Trainer::arguments_to_save();  // may have changed since
  for (const auto& [name, value] : common.items()) all[name] = value;
  return all;
}

}  // namespace gradus
