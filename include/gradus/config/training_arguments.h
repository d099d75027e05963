#pragma once

#include <gradus/config/argument_groups.h>
#include <gradus/config/steps_or_ratio.h>
#include <gradus/config/string_or_list.h>
#include <gradus/core/log.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// How a run is to be done: every option of transformers' `TrainingArguments`, in its order, then
/// our own.
///
/// A plain aggregate: `TrainingArguments{.output_dir = "runs/a", .max_steps = 100}`. Nothing is
/// checked or derived until `resolved()`, which the Trainer calls. docs/user/options.md says what
/// every option means.
struct TrainingArguments {
#include <gradus/config/training_arguments_fields.inc>

  /// The same options checked, with everything derived that transformers derives on construction:
  /// `output_dir` is set and its `~` expanded, JSON strings are dictionaries, `eval_steps`,
  /// `metric_for_best_model`, `greater_is_better`, `report_to`, `do_eval`, `accelerator_config` …
  /// have their final values. Idempotent. Throws `Error` (usage) G-CONF-3 for a value out of range,
  /// G-CONF-4 for options that contradict each other, G-CONF-5 for what gradus does not do;
  /// harmless Python-only options are answered with one warning each.
  TrainingArguments resolved() const;

  /// Examples per forward pass of this process; one device per process.
  int64_t train_batch_size() const { return per_device_train_batch_size; }
  /// The same for evaluation.
  int64_t eval_batch_size() const { return per_device_eval_batch_size; }

  /// Warm-up steps in a run of `num_training_steps`.
  int64_t get_warmup_steps(int64_t num_training_steps) const {
    return warmup_steps.steps(num_training_steps);
  }

  /// "fp16", "bf16", or what ACCELERATE_MIXED_PRECISION says (default "no").
  std::string mixed_precision() const;

  /// `max_shard_size` in bytes (see `parse_byte_size`). Throws G-CONF-3 for what is no size.
  int64_t max_shard_bytes() const;

  /// Number of processes that a launcher started (see launch_environment.h). This and the next
  /// functions throw G-CONF-8 for a broken environment.
  int64_t world_size() const;
  /// The rank of this process among all.
  int64_t process_index() const;
  /// Its rank on this machine.
  int64_t local_process_index() const;
  /// Whether this process logs: the first, or with `log_on_each_node` the first of its machine.
  bool should_log() const;
  /// Whether it saves: the first, or with `save_on_each_node` the first of its machine.
  bool should_save() const;
  /// `log_level` or, on processes that should not log, `log_level_replica`; "passive" is the level
  /// set now.
  LogLevel get_process_log_level() const;

  /// Every option by name, in order; tokens are hidden as `<HUB_TOKEN>`.
  nlohmann::ordered_json to_dict() const;
  /// `to_dict` with an indent of 2.
  std::string to_json_string() const;
  /// Only booleans, numbers and strings (others as their text), with the batch sizes: for
  /// TensorBoard's hparams.
  nlohmann::ordered_json to_sanitized_dict() const;
  /// Options sorted by name, one a line.
  std::string to_string() const;
  /// From a dictionary with some or all options. Throws G-CONF-1 for unknown keys and G-CONF-2 for
  /// wrong types.
  static TrainingArguments from_json(const nlohmann::json& dict);

  // The fluent setters of transformers. They set, and do not check more than transformers does;
  // `resolved()` checks.
  /// Sets duration, learning rate and batch size of training.
  TrainingArguments& set_training(const TrainingSettings& settings = {});
  /// Sets when and how to evaluate.
  TrainingArguments& set_evaluate(const EvaluateSettings& settings = {});
  /// Sets how to predict.
  TrainingArguments& set_testing(const TestingSettings& settings = {});
  /// Sets when to save.
  TrainingArguments& set_save(const SaveSettings& settings = {});
  /// Sets when and where to log.
  TrainingArguments& set_logging(const LoggingSettings& settings = {});
  /// Sets what goes to the Hub.
  TrainingArguments& set_push_to_hub(const HubSettings& settings);
  /// Sets the optimizer.
  TrainingArguments& set_optimizer(const OptimizerSettings& settings = {});
  /// Sets the schedule.
  TrainingArguments& set_lr_scheduler(const SchedulerSettings& settings = {});
  /// Sets how data is loaded.
  TrainingArguments& set_dataloader(const DataLoaderSettings& settings = {});

  friend bool operator==(const TrainingArguments&, const TrainingArguments&) = default;
};

/// The same as a function.
inline TrainingArguments resolve(const TrainingArguments& args) { return args.resolved(); }

}  // namespace gradus
