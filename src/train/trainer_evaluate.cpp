// Evaluation and prediction.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/engine/evaluator.h>
#include <gradus/train/callbacks.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/saved_callbacks.h"
#include "train/search_run.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

std::string keys_of(const Metrics& metrics) {
  Names keys;
  for (const auto& [key, value] : metrics) keys.push_back(key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

// While one of these lives, the model has the weights that a callback wants evaluated, such as
// their average.
class UseEvaluationWeights {
 public:
  UseEvaluationWeights(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks, Model& model,
                       const StepEngine& engine)
      : model_(model), engine_(engine) {
    for (const auto& callback : callbacks)
      if (callback->has_evaluation_weights()) owner_ = callback.get();
    swap();
  }
  ~UseEvaluationWeights() { swap(); }
  UseEvaluationWeights(const UseEvaluationWeights&) = delete;
  UseEvaluationWeights& operator=(const UseEvaluationWeights&) = delete;

 private:
  void swap() {
    if (owner_ == nullptr) return;
    const auto float32 = engine_.shown(MasterWeights::Shown::Use::written);
    owner_->swap_weights(model_);
  }

  Model& model_;
  const StepEngine& engine_;
  TrainerCallback* owner_ = nullptr;
};

// Sets a flag while it lives.
class Interruptible {
 public:
  explicit Interruptible(bool& flag) : flag_(flag) { flag_ = true; }
  ~Interruptible() { flag_ = false; }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  bool& flag_;
};

// Tokens that count in the loss of a batch.
int64_t label_tokens(const Batch& batch, bool shifted) {
  auto labels = batch["labels"];
  if (shifted && labels.dim() > 0) labels = labels.slice(-1, 1);
  return labels.ne(-100).sum().item<int64_t>();
}

Error evaluation_out_of_memory(int64_t batch_size) {
  return Error("G-TRAIN-21", ErrorKind::training,
               fmt::format("memory ran out in an evaluation with batches of {}; "
                           "auto_find_batch_size changes only the training batch size",
                           batch_size),
               "Lower --per_device_eval_batch_size, or move predictions to the CPU earlier with "
               "--eval_accumulation_steps.");
}

void log_evaluation(const std::string& description, const DataLoader& loader, int64_t batch_size) {
  log_info("***** Running " + description + " *****");
  log_info(loader.num_examples() ? fmt::format("  Num examples = {}", *loader.num_examples())
                                 : "  Num examples: Unknown");
  log_info(fmt::format("  Batch size = {}", batch_size));
}

}  // namespace

Metrics Trainer::evaluate(EvalDatasets eval_dataset, std::optional<Names> ignore_keys,
                          const std::string& metric_key_prefix) {
  auto& p = *parts_;
  if (!eval_dataset) eval_dataset = p.eval_dataset;
  if (!eval_dataset)
    throw Error("G-TRAIN-12", ErrorKind::usage,
                "evaluate() needs an eval_dataset: the Trainer has none",
                "Give one to evaluate() or to the Trainer.");
  if (eval_dataset.is_named()) {
    Metrics all;
    for (const auto& [name, dataset] : eval_dataset.named()) {
      if (!dataset)
        throw Error("G-TRAIN-12", ErrorKind::usage,
                    "evaluate(): the eval_dataset '" + name + "' is a null pointer",
                    "Give it a data set, or leave it out.");
      // A name that several sets have is the last one's, as in Python.
      for (const auto& [metric, value] :
           evaluate(dataset, ignore_keys, metric_key_prefix + "_" + name))
        all[metric] = value;
    }
    return all;
  }
  const MemoryTracker::Stage measured(p.memory, "eval");
  const auto loader = get_eval_dataloader(eval_dataset.single());
  const double start = wall_clock();
  const auto loss_only = p.compute_metrics ? std::optional<bool>() : std::optional(true);
  auto output = evaluation_loop(loader, "Evaluation", loss_only, ignore_keys, metric_key_prefix);
  const double steps = std::ceil(double(output.num_samples) /
                                 double(p.args.eval_batch_size() * p.args.world_size()));
  output.metrics.merge(speed_metrics(
      metric_key_prefix, start + output.metrics[metric_key_prefix + "_model_preparation_time"],
      double(output.num_samples), steps));
  if (!p.preparation.seconds) output.metrics.erase(metric_key_prefix + "_model_preparation_time");
  log(output.metrics);
  p.add_counts(output.metrics);
  call(Event::evaluate, {}, output.metrics);
  p.memory.stop("eval", &output.metrics);
  return output.metrics;
}

PredictionOutput Trainer::predict(DatasetRef test_dataset, std::optional<Names> ignore_keys,
                                  const std::string& metric_key_prefix) {
  auto& p = *parts_;
  const MemoryTracker::Stage measured(p.memory, "test");
  const auto loader = get_test_dataloader(test_dataset);
  const double start = wall_clock();
  auto output = evaluation_loop(loader, "Prediction", std::nullopt, ignore_keys, metric_key_prefix);
  const double steps = std::ceil(double(output.num_samples) /
                                 double(p.args.eval_batch_size() * p.args.world_size()));
  output.metrics.merge(speed_metrics(metric_key_prefix, start, double(output.num_samples), steps));
  call(Event::predict, {}, output.metrics);
  p.memory.stop("test", &output.metrics);
  auto& found = output.prediction;
  return {found.predictions,
          found.label_ids,
          std::move(found.prediction_parts),
          std::move(found.label_parts),
          std::move(output.metrics),
          std::move(found.prediction_batches),
          std::move(found.label_batches)};
}

bool Trainer::Parts::starts_workers(const DataLoader& loader,
                                    const std::string& metric_key_prefix) {
  if (!keeps_workers(loader)) return true;
  if (!evaluations.have_begun.insert(metric_key_prefix).second) return false;
  const auto key = metric_key_prefix + "_runtime";
  return std::none_of(state.log_history.begin(), state.log_history.end(),
                      [&](const auto& entry) { return entry.contains(key); });
}

void Trainer::Parts::begin_evaluation() {
  if (!std::exchange(preparation.is_done, true)) {
    const double start = wall_clock();
    model->to(engine.device());
    preparation.seconds = std::round((wall_clock() - start) * 1e4) / 1e4;
  } else if (!is_in_train && engine.device().is_cuda()) {
    model->to(engine.device());  // after a run that broke off before its first step
  }
  if (!is_in_train && args.fp16_full_eval)
    model->to(engine.device(), torch::kHalf);
  else if (!is_in_train && args.bf16_full_eval)
    model->to(engine.device(), torch::kBFloat16);
  model->eval();
  if (engine.optimizer()) engine.optimizer()->eval();
}

EvalLoopOutput Trainer::evaluation_loop(const DataLoader& dataloader,
                                        const std::string& description,
                                        std::optional<bool> prediction_loss_only,
                                        std::optional<Names> ignore_keys,
                                        const std::string& metric_key_prefix) {
  auto& p = *parts_;
  const bool loss_only = prediction_loss_only.value_or(p.args.prediction_loss_only);
  const auto ignored = ignore_keys.value_or(p.model->keys_to_ignore_at_inference());
  p.begin_evaluation();
  log_evaluation(description, dataloader, p.args.eval_batch_size());
  p.evaluations.loader = dataloader;

  EvaluatorOptions options{
      .compute_metrics = p.compute_metrics,
      .preprocess_logits = p.preprocess_logits_for_metrics,
      .include_for_metrics = p.args.include_for_metrics,
      .batch_eval_metrics = p.args.batch_eval_metrics,
      .eval_do_concat_batches = p.args.eval_do_concat_batches,
      .eval_accumulation_steps = p.args.eval_accumulation_steps,
      .keep_predictions = !p.args.batch_eval_metrics || description == "Prediction",
      .main_input_name = p.model->main_input_name(),
      .metric_key_prefix = metric_key_prefix,
      .rows_of_loss = [this](const Batch& batch) { return rows_of_loss(batch.rows()); },
      .after_batch =
          [this] {
            call(Event::prediction_step);
            if (parts_->run && parts_->run->may_interrupt_evaluation &&
                parts_->control.is_interrupted)
              throw EvaluationInterrupted();
          },
      .strategy = &p.engine.strategy()};
  // A class with a rule of its own for the weight of a loss keeps it.
  if (rows_of_loss(0) == 0) options.batch_size = p.args.eval_batch_size();
  if (p.args.eval_loss_weighting == "tokens")
    options.tokens_of_loss = [this](const Batch& batch) {
      return batch.contains("labels") ? label_tokens(batch, model().counts_shifted_labels())
                                      : rows_of_loss(batch.rows());
    };
  if (description == "Prediction" || p.starts_workers(dataloader, metric_key_prefix))
    draw_as_a_loader_does();
  // A class of its own may run the model more often in one process than in another, to generate.
  const auto whole =
      is_exactly<Trainer>() ? nullptr : p.engine.strategy().whole(Strategy::Use::computed);
  auto output = p.processes.together([&] {
    return Evaluator(std::move(options)).run(dataloader, [&](const Batch& batch) {
      return prediction_step(*p.model, batch, loss_only, ignored);
    });
  });
  if (p.preparation.seconds)
    output.metrics[metric_key_prefix + "_model_preparation_time"] = *p.preparation.seconds;
  return output;
}

PredictionStep Trainer::prediction_step(Model& model, Batch inputs, bool prediction_loss_only,
                                        const Names& ignore_keys) {
  auto& p = *parts_;
  const torch::NoGradGuard no_grad;
  inputs = prepare_inputs(std::move(inputs));
  PredictionStep step;
  bool has_labels = !p.label_names.empty();
  for (const auto& name : p.label_names) has_labels &= inputs.contains(name);
  if (has_labels)
    for (const auto& name : p.label_names) step.labels.push_back(inputs[name].detach());

  const auto autocast = compute_loss_context_manager();
  p.forward = ForwardOptions{.num_items_in_batch = std::nullopt,
                             .need_logits = !prediction_loss_only || step_traits().reads_logits};
  const auto forward = [&](const Batch& given) {
    if (!has_labels) return run_model(model, given, /*training=*/false);
    auto computed = compute_loss(model, given, get_num_items_in_batch({given}));
    if (!computed.loss.defined())
      throw Error("G-TRAIN-7", ErrorKind::training,
                  "compute_loss returned no loss for a batch of the evaluation",
                  "Return a tensor for every batch with labels.");
    if (prediction_loss_only) computed.outputs = ModelOutput();
    computed.outputs.set("loss", computed.loss.detach().mean());
    return std::move(computed.outputs);
  };
  const auto outputs =
      p.engine.forward(inputs, fmt::format("{}{}", has_labels, prediction_loss_only), forward);
  if (has_labels) step.loss = outputs["loss"];
  p.forward = {};
  if (prediction_loss_only) {
    step.labels.clear();
    return step;
  }
  for (const auto& [name, value] : outputs) {
    const bool skip = (has_labels && name == "loss") ||
                      std::find(ignore_keys.begin(), ignore_keys.end(), name) != ignore_keys.end();
    if (!skip && value.defined()) step.logits.push_back(value.detach());
  }
  return step;
}

// The metrics; none when the run is interrupted. What the evaluation has changed until then is as
// before, at least in what is saved, and a run that goes on from there makes up for it.
std::optional<Metrics> Trainer::evaluate_in_training(bool step_scheduler) {
  auto& p = *parts_;
  auto& run = *p.run;
  if (!p.control.is_interrupted) {
    if (p.processes.size() > 1) gather_callback_states(p.callbacks.all());
    Run::BeforeEvaluation before{p.random_state(), callback_states(p.callbacks.all()),
                                 exported_callback_states(p.callbacks.all(), p.control),
                                 p.state.log_history};
    try {
      const auto metrics = [&] {
        const Interruptible scope(run.may_interrupt_evaluation);
        const UseEvaluationWeights swapped(p.callbacks.all(), *p.model, p.engine);
        return evaluate();
      }();
      if (p.search) p.search->report(metrics, p.state.global_step);
      if (step_scheduler && p.engine.schedule() && p.engine.schedule()->is_metric_driven())
        p.engine.schedule()->step(best_metric_of(metrics, p.args));
      return metrics;
    } catch (const EvaluationInterrupted&) {
    } catch (const std::exception& error) {
      // train() would take it for a training batch that is too large and start again.
      if (p.args.auto_find_batch_size && device::is_out_of_memory(error))
        throw evaluation_out_of_memory(p.args.eval_batch_size());
      throw;
    }
    p.state.log_history = before.log_history;
    run.before_evaluation = std::move(before);
  }
  run.evaluation_is_missing = true;
  p.control.should_evaluate = false;
  return std::nullopt;
}

double best_metric_of(const Metrics& metrics, const TrainingArguments& args) {
  const auto key = best_metric_key(args);
  const auto found = metrics.find(key);
  if (found == metrics.end())
    throw Error(
        "G-TRAIN-13", ErrorKind::training,
        fmt::format(
            "metric_for_best_model is '{}', which the evaluation did not return; it returned: {}",
            key, keys_of(metrics)),
        "Return that metric from compute_metrics, or set --metric_for_best_model to one of these.");
  return found->second;
}

bool update_best_metric(const Metrics& metrics, const TrainingArguments& args,
                        TrainerState& state) {
  if (!args.metric_for_best_model) return false;
  const double value = best_metric_of(metrics, args);
  const bool greater = args.greater_is_better.value_or(false);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!state.best_metric) state.best_metric = greater ? -kInfinity : kInfinity;
  if (!(greater ? value > *state.best_metric : value < *state.best_metric)) return false;
  state.best_metric = value;
  if (args.save_strategy != "no") state.best_global_step = state.global_step;
  return true;
}

}  // namespace gradus
