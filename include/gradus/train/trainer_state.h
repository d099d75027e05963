#pragma once

#include <gradus/core/metrics.h>
#include <gradus/train/log_history.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

struct TrainingArguments;

/// The progress of a run. It has the 20 fields of transformers' TrainerState, and
/// `trainer_state.json` holds exactly these.
struct TrainerState {
  double epoch = 0;                         ///< Passes over the data so far, with a fraction.
  int64_t global_step = 0;                  ///< Optimizer steps so far.
  int64_t max_steps = 0;                    ///< Optimizer steps of the whole run.
  int64_t logging_steps = 500;              ///< Steps between two logs.
  int64_t eval_steps = 500;                 ///< Steps between two evaluations.
  int64_t save_steps = 500;                 ///< Steps between two checkpoints.
  std::optional<int64_t> train_batch_size;  ///< Rows per batch.
  int64_t num_train_epochs = 0;             ///< Passes over the data in the whole run.
  int64_t num_input_tokens_seen = 0;        ///< See `include_num_input_tokens_seen`.
  double total_flos = 0;                    ///< Floating-point operations so far.
  LogHistory log_history;                   ///< One object per log, with "step".
  std::optional<double> best_metric;        ///< The best value of `metric_for_best_model`.
  std::optional<int64_t> best_global_step;  ///< The step of the best value.
  std::optional<std::string> best_model_checkpoint;  ///< The checkpoint of the best value.
  bool is_local_process_zero = true;      ///< Whether this is the first process of its machine.
  bool is_world_process_zero = true;      ///< Whether this is the first process of all.
  bool is_hyper_param_search = false;     ///< Whether the run is a trial of a search.
  std::optional<std::string> trial_name;  ///< The name of the trial, where `hp_name` gives one.
  nlohmann::json trial_params;            ///< The parameters of the trial; null for none.
  /// The exported states of callbacks by name; a list where there are several of a name.
  nlohmann::json stateful_callbacks = nlohmann::json::object();

  /// Sets the three step intervals. Shares of `steps` become counts, rounded up.
  void compute_steps(const TrainingArguments& args, int64_t steps);

  /// All fields by name.
  nlohmann::json to_json() const;
  /// Reads all fields. Throws `Error` G-CKPT-4 for an unknown key or a wrong type.
  static TrainerState from_json(const nlohmann::json& json);
  /// The text of the file: indent 2, sorted keys, a final line break.
  std::string to_text() const;
  /// The same in pieces, most of which it shares with `log_history`: its cost does not grow with
  /// the log.
  std::vector<std::shared_ptr<const std::string>> text_pieces() const;
  /// Writes the file. Throws `Error` G-IO-2.
  void save_to_json(const std::filesystem::path& file) const;
  /// Reads a file. Throws `Error` G-IO-1, G-JSON-1 and what `from_json` throws.
  static TrainerState load_from_json(const std::filesystem::path& file);
};

/// A log entry as it is in `log_history`: counts are integers, everything else is a double.
nlohmann::json log_entry(const Logs& logs, int64_t step);

}  // namespace gradus
