#pragma once

#include <gradus/config/steps_or_ratio.h>
#include <gradus/config/string_or_list.h>

#include <cstdint>
#include <optional>
#include <string>

// The arguments of the fluent setters of `TrainingArguments`, by name and with the defaults of
// transformers. Each field sets the option named in its comment; docs/user/options.md explains it.
//
//     args.set_training({.learning_rate = 1e-4, .batch_size = 32}).set_save({.strategy = "epoch"});
namespace gradus {

/// What `TrainingArguments::set_training` takes.
struct TrainingSettings {
  double learning_rate = 5e-5;              ///< `learning_rate`.
  int64_t batch_size = 8;                   ///< `per_device_train_batch_size`.
  double weight_decay = 0;                  ///< `weight_decay`.
  double num_epochs = 3;                    ///< `num_train_epochs`.
  int64_t max_steps = -1;                   ///< `max_steps`; -1 to train by epochs.
  int64_t gradient_accumulation_steps = 1;  ///< `gradient_accumulation_steps`.
  int64_t seed = 42;                        ///< `seed`.
  bool gradient_checkpointing = false;      ///< `gradient_checkpointing`.
};

/// What `TrainingArguments::set_evaluate` takes.
struct EvaluateSettings {
  std::string strategy = "no";                               ///< `eval_strategy`.
  StepsOrRatio steps = 500;                                  ///< `eval_steps`.
  int64_t batch_size = 8;                                    ///< `per_device_eval_batch_size`.
  std::optional<int64_t> accumulation_steps = std::nullopt;  ///< `eval_accumulation_steps`.
  std::optional<double> delay = std::nullopt;                ///< `eval_delay`.
  bool loss_only = false;                                    ///< `prediction_loss_only`.
};

/// What `TrainingArguments::set_testing` takes.
struct TestingSettings {
  int64_t batch_size = 8;  ///< `per_device_eval_batch_size`.
  bool loss_only = false;  ///< `prediction_loss_only`.
};

/// What `TrainingArguments::set_save` takes.
struct SaveSettings {
  std::string strategy = "steps";                     ///< `save_strategy`.
  StepsOrRatio steps = 500;                           ///< `save_steps`.
  std::optional<int64_t> total_limit = std::nullopt;  ///< `save_total_limit`.
  bool on_each_node = false;                          ///< `save_on_each_node`.
};

/// What `TrainingArguments::set_logging` takes.
struct LoggingSettings {
  std::string strategy = "steps";         ///< `logging_strategy`.
  StepsOrRatio steps = 500;               ///< `logging_steps`.
  StringOrList report_to = "none";        ///< `report_to`.
  std::string level = "passive";          ///< `log_level`.
  bool first_step = false;                ///< `logging_first_step`.
  bool nan_inf_filter = false;            ///< `logging_nan_inf_filter`.
  bool on_each_node = false;              ///< `log_on_each_node`.
  std::string replica_level = "passive";  ///< `log_level_replica`.
};

/// What `TrainingArguments::set_push_to_hub` takes.
struct HubSettings {
  std::string model_id = {};                           ///< `hub_model_id`.
  std::string strategy = "every_save";                 ///< `hub_strategy`.
  std::optional<std::string> token = std::nullopt;     ///< `hub_token`.
  std::optional<bool> private_repo = std::nullopt;     ///< `hub_private_repo`.
  bool always_push = false;                            ///< `hub_always_push`.
  std::optional<std::string> revision = std::nullopt;  ///< `hub_revision`.
};

/// What `TrainingArguments::set_optimizer` takes.
struct OptimizerSettings {
  std::string name = "adamw_torch";                ///< `optim`.
  double learning_rate = 5e-5;                     ///< `learning_rate`.
  double weight_decay = 0;                         ///< `weight_decay`.
  double beta1 = 0.9;                              ///< `adam_beta1`.
  double beta2 = 0.999;                            ///< `adam_beta2`.
  double epsilon = 1e-8;                           ///< `adam_epsilon`.
  std::optional<std::string> args = std::nullopt;  ///< `optim_args`.
};

/// What `TrainingArguments::set_lr_scheduler` takes.
struct SchedulerSettings {
  std::string name = "linear";    ///< `lr_scheduler_type`.
  double num_epochs = 3.0;        ///< `num_train_epochs`.
  int64_t max_steps = -1;         ///< `max_steps`; -1 to train by epochs.
  StepsOrRatio warmup_steps = 0;  ///< `warmup_steps`.
};

/// What `TrainingArguments::set_dataloader` takes.
struct DataLoaderSettings {
  int64_t train_batch_size = 8;                           ///< `per_device_train_batch_size`.
  int64_t eval_batch_size = 8;                            ///< `per_device_eval_batch_size`.
  bool drop_last = false;                                 ///< `dataloader_drop_last`.
  int64_t num_workers = 0;                                ///< `dataloader_num_workers`.
  bool pin_memory = true;                                 ///< `dataloader_pin_memory`.
  bool persistent_workers = false;                        ///< `dataloader_persistent_workers`.
  std::optional<int64_t> prefetch_factor = std::nullopt;  ///< `dataloader_prefetch_factor`.
  /// `dataloader_multiprocessing_context`.
  std::optional<std::string> multiprocessing_context = std::nullopt;
  bool in_order = true;                                ///< `dataloader_in_order`.
  bool auto_find_batch_size = false;                   ///< `auto_find_batch_size`.
  bool ignore_data_skip = false;                       ///< `ignore_data_skip`.
  std::optional<int64_t> sampler_seed = std::nullopt;  ///< `data_seed`.
};

}  // namespace gradus
