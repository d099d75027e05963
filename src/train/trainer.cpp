// The Trainer's constructor, parts and callbacks. The loop is in trainer_loop.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/config/launch_environment.h>
#include <gradus/config/optimizer_arguments.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>
#include <gradus/optim/param_groups.h>
#include <gradus/trackers/tracker.h>
#include <gradus/train/callbacks.h>

#include <algorithm>

#include "config/profiled_steps.h"
#include "distributed/process_device.h"
#include "train/process_settings.h"
#include "train/step_profiler.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

void check_options(const TrainerOptions& options, const TrainingArguments& args) {
  const auto refuse = [](const std::string& message, const std::string& advice) {
    throw Error("G-TRAIN-8", ErrorKind::usage, message, advice);
  };
  if (!options.model && !options.model_init)
    refuse("Trainer needs a model: neither model nor model_init is set",
           "Set one of them in TrainerOptions.");
  if (options.model && options.model_init)
    refuse("Trainer received both model and model_init: expected exactly one",
           "Leave one out; model_init is called at every train().");
  if (options.model_init && (options.optimizers.optimizer || options.optimizers.lr_scheduler))
    refuse(
        "model_init cannot go with optimizers: a new model would leave them with the old "
        "parameters",
        "Override create_optimizer_and_scheduler, or set optimizer_factory.");
  if (options.optimizer_factory && options.optimizers.optimizer)
    refuse("Trainer received both optimizers and optimizer_factory: expected at most one",
           "Leave one out.");
  if (args.eval_strategy != "no" && !options.eval_dataset)
    refuse("eval_strategy is '" + args.eval_strategy + "' but there is no eval_dataset",
           "Give an eval_dataset (--validation_file), or set --eval_strategy no.");
  if ((args.save_strategy == "best" || args.load_best_model_at_end) && !args.metric_for_best_model)
    refuse(
        "metric_for_best_model must be provided when save_strategy is 'best' or "
        "load_best_model_at_end is set",
        "Set --metric_for_best_model, for example to loss.");
  if (args.batch_eval_metrics && options.compute_metrics &&
      !options.compute_metrics.takes_compute_result())
    refuse(
        "batch_eval_metrics needs a compute_metrics that takes (EvalPrediction, bool "
        "compute_result)",
        "Add the second parameter: it is true for the last batch.");
  if (options.train_dataset && !options.train_dataset.size() && args.max_steps <= 0)
    refuse("train_dataset has no length and max_steps is " + std::to_string(args.max_steps) +
               ": the number of steps is not known",
           "Set --max_steps to a positive number.");
  if (!options.optimizers.optimizer && !options.optimizer_factory) check_optimizer_name(args.optim);
}

void set_up_process(const TrainingArguments& args) {
  apply_process_settings(args);
  device::load_cuda();
  device::seed_all(args.seed);
  const auto here = launch_environment();
  if (!args.use_cpu && device::gpu_count() > here.local_world_size && here.local_rank == 0)
    log_warning_once(fmt::format("There are {} GPUs; {} {} used.", device::gpu_count(),
                                 here.local_world_size, here.local_world_size == 1 ? "is" : "are"));
}

torch::ScalarType autocast_dtype(const TrainingArguments& args) {
  const auto precision = args.mixed_precision();
  return precision == "fp16"   ? torch::kHalf
         : precision == "bf16" ? torch::kBFloat16
                               : torch::kFloat;
}

}  // namespace

std::shared_ptr<Model> make_initial_model(const ModelInit& model_init, search::Trial* trial) {
  auto model = model_init(trial);
  if (!model)
    throw Error("G-TRAIN-8", ErrorKind::model, "model_init returned no model",
                "Return a std::shared_ptr<Model> that points to one.");
  return model;
}

Trainer::Parts::Parts(TrainerOptions given, torch::Device device)
    : TrainerOptions(std::move(given)),
      processes(args, device),
      engine(device, autocast_dtype(args), processes.strategy(args)),
      memory(!args.skip_memory_metrics, device) {}

Trainer::Trainer(TrainerOptions options) {
  options.args = options.args.resolved();
  set_log_level(options.args.get_process_log_level());
  check_options(options, options.args);
  set_up_process(options.args);
  const auto device = process_device(
      options.args.use_cpu, options.args.local_process_index(),
      options.args.ddp_backend == "gloo" ? GpuSharing::allowed : GpuSharing::refused);
  parts_ = std::make_unique<Parts>(std::move(options), device);
  auto& p = *parts_;
  p.memory.start("init");
  p.foreign_rng.python = python_random_state(uint64_t(p.args.seed));

  if (!p.model) p.model = make_initial_model(p.model_init);
  if (!p.args.fp16_full_eval && !p.args.bf16_full_eval && !p.frozen_weights_wait())
    p.model->to(device);
  if (!p.data_collator && p.processing_class)
    p.data_collator = DataCollatorWithPadding({.tokenizer = p.processing_class});
  else if (!p.data_collator)
    p.data_collator = default_data_collator;
  p.engine.set_optimizer(std::move(p.optimizers.optimizer));
  p.engine.set_schedule(std::move(p.optimizers.lr_scheduler));

  p.label_names = p.args.label_names.value_or(p.model->label_names());
  p.train_batch_size = p.args.train_batch_size();
  if (p.args.debug.contains("underflow_overflow")) {
    p.debug = std::make_unique<DebugUnderflowOverflow>();
    p.args.cuda_graphs = "off";  // a replay runs nothing that could be watched
  }
  if (p.args.label_smoothing_factor != 0) {
    const auto config = p.model->config();
    if (config.is_object() &&
        config.value("problem_type", nlohmann::json()) == "multi_label_classification")
      log_warning(
          "Label smoothing cannot be used with multi-label classification and is turned off for "
          "this run.");
    else
      p.label_smoother.emplace(p.args.label_smoothing_factor);
  }

  p.callbacks.add(std::make_shared<DefaultFlowCallback>());
  for (const auto& name : p.args.report_to.words())
    p.callbacks.add(
        std::make_shared<TrackerCallback>(name, make_tracker(name, *p.args.output_dir)));
  if (const auto steps = config::profiled_steps(p.args.profile_steps))
    p.callbacks.add(std::make_shared<StepProfiler>(*steps, device));
  if (p.args.enable_jit_checkpoint) p.callbacks.add(std::make_shared<JITCheckpointCallback>());
  for (auto& callback : std::exchange(p.TrainerOptions::callbacks, {}))
    p.callbacks.add(std::move(callback));
  if (p.args.disable_tqdm.value_or(false))
    p.callbacks.add(std::make_shared<PrinterCallback>());
  else
    p.callbacks.add(std::make_shared<ProgressCallback>());

  if (p.args.should_save()) make_directory(*p.args.output_dir);
  p.export_callback_states();
  call(Event::init_end);
  p.model->set_use_cache(p.args.use_cache);
  p.memory.stop("init", nullptr);
}

Trainer::~Trainer() = default;

void Trainer::call(Event event, const Logs& logs, const Metrics& metrics,
                   const std::string& exception) {
  auto& p = *parts_;
  switch (event) {  // what is asked for is cleared before the callbacks run, as in HF
    case Event::train_begin: p.control.new_training(); break;
    case Event::epoch_begin: p.control.new_epoch(); break;
    case Event::step_begin: p.control.new_step(); break;
    case Event::evaluate: p.control.should_evaluate = false; break;
    case Event::save: p.control.should_save = false; break;
    case Event::log: p.control.should_log = false; break;
    default: break;
  }
  const CallbackContext at{p.state,
                           logs,
                           metrics,
                           p.model.get(),
                           p.processing_class.get(),
                           p.engine.optimizer().get(),
                           p.engine.schedule().get(),
                           p.train_loader ? &p.train_loader : nullptr,
                           p.evaluations.loader ? &p.evaluations.loader : nullptr,
                           exception};
  p.callbacks.call(event, p.args, p.state, p.control, at);
  if (p.agrees_after(event)) p.processes.agree(p.control);
}

// These events come at the same moment in every process, and what is asked for is acted on next.
bool Trainer::Parts::agrees_after(Event event) const {
  if (processes.size() == 1 || !is_in_train) return false;
  switch (event) {
    case Event::step_end:
    case Event::epoch_end:
    case Event::evaluate:
    case Event::save: return true;
    case Event::substep_end: return callbacks.listens_to(event);
    case Event::prediction_step: return run && run->may_interrupt_evaluation;
    default: return false;
  }
}

void Trainer::add_callback(CallbackHandle callback) { parts_->callbacks.add(std::move(callback)); }
std::shared_ptr<TrainerCallback> Trainer::pop_callback(const std::string& name) {
  return parts_->callbacks.pop(name);
}
bool Trainer::remove_callback(const std::shared_ptr<TrainerCallback>& callback) {
  return parts_->callbacks.remove(callback);
}
const std::vector<std::shared_ptr<TrainerCallback>>& Trainer::callbacks() const {
  return parts_->callbacks.all();
}
void Trainer::on(Event event, EventFunction function) { on(event, Every{1}, std::move(function)); }
void Trainer::on(Event event, Every cadence, EventFunction function) {
  add_callback(make_callback(event, cadence, std::move(function)));
}

Model& Trainer::model() const { return *parts_->model; }
std::shared_ptr<Model> Trainer::model_ptr() const { return parts_->model; }
const TrainingArguments& Trainer::args() const { return parts_->args; }
TrainingArguments& Trainer::args() { return parts_->args; }
TrainerState& Trainer::state() { return parts_->state; }
const TrainerState& Trainer::state() const { return parts_->state; }
TrainerControl& Trainer::control() { return parts_->control; }
std::shared_ptr<Optimizer> Trainer::optimizer() const { return parts_->engine.optimizer(); }
std::shared_ptr<LRScheduler> Trainer::lr_scheduler() const { return parts_->engine.schedule(); }
torch::Device Trainer::device() const { return parts_->engine.device(); }
bool Trainer::is_in_train() const { return parts_->is_in_train; }
bool Trainer::is_world_process_zero() const { return parts_->processes.rank() == 0; }
bool Trainer::is_local_process_zero() const { return parts_->args.local_process_index() == 0; }
int64_t Trainer::world_size() const { return parts_->processes.size(); }
const Names& Trainer::label_names() const { return parts_->label_names; }
int64_t Trainer::filtered_losses() const { return parts_->run ? parts_->run->loss.filtered() : 0; }
void Trainer::wait_for_saves() {
  const auto outcome = parts_->writer.wait_for_outcome();
  parts_->note_save(outcome);
  if (outcome && outcome->failure) throw Error(*outcome->failure);
}

int64_t Trainer::num_trainable_parameters() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : trainable_parameters(parts_->model->named_module()))
    count += parameter.numel();
  return count;
}

std::vector<double> Trainer::get_learning_rates() const {
  if (!parts_->engine.optimizer())
    throw Error("G-TRAIN-5", ErrorKind::training, "the optimizer does not exist before training",
                "Call train() or create_optimizer first.");
  std::vector<double> rates;
  for (const auto& group : parts_->engine.optimizer()->param_groups()) rates.push_back(group.lr);
  return rates;
}

Names Trainer::get_decay_parameter_names() const {
  return decay_parameter_names(parts_->model->named_module());
}

// Optimizer and schedule.

void Trainer::set_optimizer(std::shared_ptr<Optimizer> optimizer) {
  parts_->engine.set_optimizer(std::move(optimizer));
}

void Trainer::set_lr_scheduler(std::shared_ptr<LRScheduler> lr_scheduler) {
  parts_->engine.set_schedule(std::move(lr_scheduler));
  parts_->created_lr_scheduler = false;
}

void Trainer::create_optimizer_and_scheduler(int64_t num_training_steps) {
  create_optimizer();
  create_scheduler(num_training_steps);
}

void Trainer::create_optimizer() {
  auto& p = *parts_;
  if (p.engine.optimizer()) return;
  const auto& module = p.model->named_module();
  if (p.optimizer_factory)
    return p.engine.set_optimizer(
        p.optimizer_factory(decay_groups(module, p.args.weight_decay), p.args));
  auto groups = optimizer_groups(p.args.optim, module, p.args.weight_decay);
  if (std::ranges::all_of(groups, [](const auto& group) { return group.params.empty(); }))
    throw Error("G-TRAIN-23", ErrorKind::usage,
                "there is nothing to train: no parameter of the model requires a gradient",
                "A loaded adapter is frozen unless `is_trainable` is set. Start a new one with "
                "--use_peft on the base model, or merge the adapter first: gradus merge.");
  p.engine.set_optimizer(
      make_optimizer(p.args.optim, std::move(groups), optimizer_arguments(p.args)));
}

void Trainer::create_scheduler(int64_t num_training_steps) {
  auto& p = *parts_;
  if (p.engine.schedule()) return;
  if (!p.engine.optimizer())
    throw Error("G-TRAIN-5", ErrorKind::usage,
                "a schedule needs an optimizer: create_optimizer or optimizer_factory made none",
                "Return one from optimizer_factory, or call set_optimizer in create_optimizer.");
  p.engine.set_schedule(get_scheduler(p.args.lr_scheduler_type, *p.engine.optimizer(),
                                      p.args.get_warmup_steps(num_training_steps),
                                      num_training_steps, p.args.lr_scheduler_kwargs));
  p.created_lr_scheduler = true;
}

}  // namespace gradus
