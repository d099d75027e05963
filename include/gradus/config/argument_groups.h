#pragma once

#include <gradus/config/steps_or_ratio.h>
#include <gradus/config/string_or_list.h>

#include <cstdint>
#include <optional>
#include <string>

/// What the fluent setters of `TrainingArguments` take: the parameters of HF's setters with HF's
/// defaults, by name.
///
///     args.set_training({.learning_rate = 1e-4, .batch_size = 32}).set_save({.strategy =
///     "epoch"});
namespace gradus {

struct TrainingSettings {
  double learning_rate = 5e-5;
  int64_t batch_size = 8;
  double weight_decay = 0;
  double num_epochs = 3;
  int64_t max_steps = -1;
  int64_t gradient_accumulation_steps = 1;
  int64_t seed = 42;
  bool gradient_checkpointing = false;
};

struct EvaluateSettings {
  std::string strategy = "no";
  StepsOrRatio steps = 500;
  int64_t batch_size = 8;
  std::optional<int64_t> accumulation_steps = std::nullopt;
  std::optional<double> delay = std::nullopt;
  bool loss_only = false;
};

struct TestingSettings {
  int64_t batch_size = 8;
  bool loss_only = false;
};

struct SaveSettings {
  std::string strategy = "steps";
  StepsOrRatio steps = 500;
  std::optional<int64_t> total_limit = std::nullopt;
  bool on_each_node = false;
};

struct LoggingSettings {
  std::string strategy = "steps";
  StepsOrRatio steps = 500;
  StringOrList report_to = "none";
  std::string level = "passive";
  bool first_step = false;
  bool nan_inf_filter = false;
  bool on_each_node = false;
  std::string replica_level = "passive";
};

struct HubSettings {
  std::string model_id = {};
  std::string strategy = "every_save";
  std::optional<std::string> token = std::nullopt;
  std::optional<bool> private_repo = std::nullopt;
  bool always_push = false;
  std::optional<std::string> revision = std::nullopt;
};

struct OptimizerSettings {
  std::string name = "adamw_torch";
  double learning_rate = 5e-5;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<std::string> args = std::nullopt;
};

struct SchedulerSettings {
  std::string name = "linear";
  double num_epochs = 3.0;
  int64_t max_steps = -1;
  StepsOrRatio warmup_steps = 0;
};

struct DataLoaderSettings {
  int64_t train_batch_size = 8;
  int64_t eval_batch_size = 8;
  bool drop_last = false;
  int64_t num_workers = 0;
  bool pin_memory = true;
  bool persistent_workers = false;
  std::optional<int64_t> prefetch_factor = std::nullopt;
  std::optional<std::string> multiprocessing_context = std::nullopt;
  bool in_order = true;
  bool auto_find_batch_size = false;
  bool ignore_data_skip = false;
  std::optional<int64_t> sampler_seed = std::nullopt;
};

}  // namespace gradus
