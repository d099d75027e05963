#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trackers/system_metrics.h"
#include "trackers/tracker_file.h"

namespace gradus::runs {

/// What `RunLogWriter::begin` tells about a run.
struct RunStart {
  nlohmann::json settings;                           ///< its options
  nlohmann::json model;                              ///< the model's config, or null
  std::optional<int64_t> parameters = std::nullopt;  ///< of the model
  int64_t step = 0;                                  ///< where it goes on from
  int64_t max_steps = 0;                             ///< steps in all
};

/// Writes run_log.jsonl, from which `gradus watch`, `serve` and `report` read a run under way.
///
/// A line is an entry of the log, as log.jsonl has it but with its time:
///
///     {"step": 8, "time": 1763400000.5, "epoch": 0.5, "loss": 0.25}
///
/// or something else that is worth knowing, with "event" as its first key:
///
///     {"event": "begin", "time": 1763400000.5, "pid": 4711, "host": "a", "step": 0,
///      "max_steps": 3000, "parameters": 1000, "settings": {}, "model": {}}
///     {"event": "progress", "time": 1763400002.5, "step": 15, "epoch": 0.5,
///      "steps_per_second": 7.5, "system": {"memory_percent": 41.5}}
///     {"event": "message", "time": 1763400004, "level": "warning", "text": "…"}
///     {"event": "best", "time": 1763400005, "metric": 0.25, "checkpoint": "checkpoint-500"}
///     {"event": "end", "time": 1763400400, "how": "finished", "reason": ""}
///
/// After a "begin" what was written for later steps no longer counts. A run ends "finished",
/// "interrupted" or "failed".
///
/// Each line is written at once and in one piece. A file that cannot be written costs a warning and
/// the view, not the run. Thread-safe.
class RunLogWriter {
 public:
  /// Nothing is opened before the first line.
  explicit RunLogWriter(std::filesystem::path file);

  /// A process begins to train. At step 0 the file is begun anew.
  void begin(const RunStart& start);
  /// An entry of the log.
  void entry(const std::map<std::string, double>& values, int64_t step);
  /// Called after every step: writes a line every two seconds, and the use of processor, memory and
  /// GPUs every ten. Otherwise it costs a look at the clock.
  void progress(int64_t step, double epoch);
  /// A message of the log.
  void message(const std::string& level, std::string_view text);
  /// The best checkpoint so far.
  void best(double metric, const std::string& checkpoint);
  /// Training is over. `reason` is that of a failure.
  void end(const std::string& how, const std::string& reason = "");

 private:
  using Clock = std::chrono::steady_clock;

  void write(const nlohmann::ordered_json& line);
  nlohmann::ordered_json system();

  std::filesystem::path path_;
  std::recursive_mutex mutex_;  // a file that fails is a message of its own
  TrackerFile file_;
  bool is_open_ = false;
  SystemMetrics machine_;
  Clock::time_point next_progress_{}, next_system_{}, last_progress_{};
  int64_t last_step_ = 0;
};

}  // namespace gradus::runs
