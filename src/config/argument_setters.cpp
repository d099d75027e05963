#include <fmt/format.h>
#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/schedulers.h>

#include "config/field_value.h"
#include "config/training_choices.h"

// The fluent setters. As in transformers they check the words and a step count of 0, nothing else.
namespace gradus {
namespace {

const std::string& chosen(const std::string& word, const Rule& rule, const char* where) {
  std::string copy = word;
  config::check_field(&copy, {rule, where, {}});
  return word;
}

void need_steps(const std::string& strategy, const StepsOrRatio& steps, const char* setter) {
  if (strategy == "steps" && steps == 0)
    throw Error(
        "G-CONF-4", ErrorKind::usage,
        fmt::format("{}: strategy \"steps\" needs a positive number of steps, received 0", setter),
        "Give steps, or another strategy.");
}

}  // namespace

TrainingArguments& TrainingArguments::set_training(const TrainingSettings& settings) {
  do_train = true;
  learning_rate = settings.learning_rate;
  per_device_train_batch_size = settings.batch_size;
  weight_decay = settings.weight_decay;
  num_train_epochs = settings.num_epochs;
  max_steps = settings.max_steps;
  gradient_accumulation_steps = settings.gradient_accumulation_steps;
  seed = settings.seed;
  gradient_checkpointing = settings.gradient_checkpointing;
  return *this;
}

TrainingArguments& TrainingArguments::set_evaluate(const EvaluateSettings& settings) {
  chosen(settings.strategy, one_of(config::kIntervals), "set_evaluate: strategy");
  need_steps(settings.strategy, settings.steps, "set_evaluate");
  eval_strategy = settings.strategy;
  do_eval = eval_strategy != "no";
  eval_steps = settings.steps;
  per_device_eval_batch_size = settings.batch_size;
  eval_accumulation_steps = settings.accumulation_steps;
  eval_delay = settings.delay.value_or(0);
  prediction_loss_only = settings.loss_only;
  return *this;
}

TrainingArguments& TrainingArguments::set_testing(const TestingSettings& settings) {
  do_predict = true;
  per_device_eval_batch_size = settings.batch_size;
  prediction_loss_only = settings.loss_only;
  return *this;
}

TrainingArguments& TrainingArguments::set_save(const SaveSettings& settings) {
  chosen(settings.strategy, one_of(config::kSaveIntervals), "set_save: strategy");
  need_steps(settings.strategy, settings.steps, "set_save");
  save_strategy = settings.strategy;
  save_steps = settings.steps;
  save_total_limit = settings.total_limit;
  save_on_each_node = settings.on_each_node;
  return *this;
}

TrainingArguments& TrainingArguments::set_logging(const LoggingSettings& settings) {
  chosen(settings.strategy, one_of(config::kIntervals), "set_logging: strategy");
  need_steps(settings.strategy, settings.steps, "set_logging");
  logging_strategy = settings.strategy;
  logging_steps = settings.steps;
  report_to = settings.report_to;
  log_level = settings.level;
  logging_first_step = settings.first_step;
  logging_nan_inf_filter = settings.nan_inf_filter;
  log_on_each_node = settings.on_each_node;
  log_level_replica = settings.replica_level;
  return *this;
}

TrainingArguments& TrainingArguments::set_push_to_hub(const HubSettings& settings) {
  hub_strategy =
      chosen(settings.strategy, one_of(config::kHubStrategies), "set_push_to_hub: strategy");
  push_to_hub = true;
  hub_model_id = settings.model_id;
  hub_token = settings.token;
  hub_private_repo = settings.private_repo;
  hub_always_push = settings.always_push;
  hub_revision = settings.revision;
  return *this;
}

TrainingArguments& TrainingArguments::set_optimizer(const OptimizerSettings& settings) {
  optim = chosen(settings.name, one_of(optimizer_names), "set_optimizer: name");
  learning_rate = settings.learning_rate;
  weight_decay = settings.weight_decay;
  adam_beta1 = settings.beta1;
  adam_beta2 = settings.beta2;
  adam_epsilon = settings.epsilon;
  optim_args = settings.args;
  return *this;
}

TrainingArguments& TrainingArguments::set_lr_scheduler(const SchedulerSettings& settings) {
  lr_scheduler_type = chosen(settings.name, one_of(scheduler_names), "set_lr_scheduler: name");
  num_train_epochs = settings.num_epochs;
  max_steps = settings.max_steps;
  warmup_steps = settings.warmup_steps;
  return *this;
}

TrainingArguments& TrainingArguments::set_dataloader(const DataLoaderSettings& settings) {
  per_device_train_batch_size = settings.train_batch_size;
  per_device_eval_batch_size = settings.eval_batch_size;
  dataloader_drop_last = settings.drop_last;
  dataloader_num_workers = settings.num_workers;
  dataloader_pin_memory = settings.pin_memory;
  dataloader_persistent_workers = settings.persistent_workers;
  dataloader_prefetch_factor = settings.prefetch_factor;
  dataloader_multiprocessing_context = settings.multiprocessing_context;
  dataloader_in_order = settings.in_order;
  auto_find_batch_size = settings.auto_find_batch_size;
  ignore_data_skip = settings.ignore_data_skip;
  data_seed = settings.sampler_seed;
  return *this;
}

}  // namespace gradus
