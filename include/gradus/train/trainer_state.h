#pragma once

#include <gradus/core/metrics.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

struct TrainingArguments;

/// Where a run stands. The 20 fields of HF's TrainerState; `trainer_state.json` holds exactly
/// these.
struct TrainerState {
  double epoch = 0;
  int64_t global_step = 0;
  int64_t max_steps = 0;
  int64_t logging_steps = 500;
  int64_t eval_steps = 500;
  int64_t save_steps = 500;
  std::optional<int64_t> train_batch_size;
  int64_t num_train_epochs = 0;
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::vector<nlohmann::json> log_history;  ///< one object per log, with "step"
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::optional<std::string> best_model_checkpoint;
  bool is_local_process_zero = true;
  bool is_world_process_zero = true;
  bool is_hyper_param_search = false;
  std::optional<std::string> trial_name;
  nlohmann::json trial_params;  ///< null or an object
  nlohmann::json stateful_callbacks =
      nlohmann::json::object();  ///< name -> exported state, or a list of them

  /// Turns ratios of `max_steps` into counts (ceil) and keeps counts.
  void compute_steps(const TrainingArguments& args, int64_t steps);

  nlohmann::json to_json() const;
  /// Throws `Error` G-CKPT-4 on an unknown or mistyped key.
  static TrainerState from_json(const nlohmann::json& json);
  /// The file's text: indent 2, sorted keys, a final line break.
  std::string to_text() const;
  void save_to_json(const std::filesystem::path& file) const;
  static TrainerState load_from_json(const std::filesystem::path& file);
};

/// A log entry as it stands in `log_history`: counts as integers, all else as doubles.
nlohmann::json log_entry(const Logs& logs, int64_t step);

}  // namespace gradus
