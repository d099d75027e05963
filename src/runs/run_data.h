#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runs/series.h"

namespace gradus::runs {

/// Where a run stands.
enum class RunStatus {
  unknown,      ///< its files do not say
  running,      ///< its process is alive
  finished,     ///< it came to its end
  interrupted,  ///< a signal stopped it; it can be gone on with
  failed,       ///< an error ended it
  lost,         ///< it began, never ended, and its process is gone
};

/// "running" and so on.
const char* status_name(RunStatus status);

/// A line that a run said: a warning, or an entry of its log.
struct RunMessage {
  double time = 0;    ///< seconds since 1970; 0 when nobody knows
  std::string level;  ///< "warning", "error", "info"; empty for an entry of the log
  std::string text;   ///< an entry of the log as JSON
};

/// What the files of a run say about it.
struct RunData {
  nlohmann::json settings;            ///< its options; null when no file has them
  nlohmann::json model;               ///< the model's config; null when no file has it
  std::optional<int64_t> parameters;  ///< of the model

  std::string host;           ///< where it runs
  int64_t process = 0;        ///< its number there; 0 when no file says so
  int64_t process_start = 0;  ///< when that began, in ticks since the machine did

  int64_t step = 0;          ///< steps done
  int64_t max_steps = 0;     ///< steps in all; 0 when nobody knows
  double epoch = 0;          ///< passes over the data
  double began = 0;          ///< when its first process began, in seconds since 1970; 0: not known
  double session_began = 0;  ///< the same of its newest process …
  int64_t session_step = 0;  ///< … and the step that it went on from
  double last_sign = 0;      ///< when it last wrote something

  RunStatus said = RunStatus::unknown;  ///< what the files say; `status_of` looks at the process
  std::string end_reason;               ///< of a run that failed
  std::optional<double> best_metric;    ///< where trainer_state.json tells
  std::string best_checkpoint;          ///< its folder's name

  std::map<std::string, Series, std::less<>> series;  ///< by key: "loss", "system/cpu"
  std::deque<RunMessage> messages;                    ///< the newest some hundred, oldest first

  /// The metric, if it has points.
  const Series* find(std::string_view key) const;
  /// Steps per second over the last minute or so of the newest process; 0 when nobody knows.
  double steps_per_second() const;
};

/// Where the run stands now. On this machine its process is looked for; a run elsewhere counts as
/// lost after ten minutes without a sign of life.
RunStatus status_of(const RunData& run, double now);

/// Seconds since 1970.
double clock_now();

/// When process `process` of this machine began, in ticks; none when there is no such process.
std::optional<int64_t> process_start_of(int64_t process);

/// How curves are sorted where not all can be seen: the losses first, then scores, then the rest.
int curve_rank(std::string_view key);

}  // namespace gradus::runs
