#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

/// How important a message is, least important first.
enum class LogLevel {
  debug,     ///< For finding a bug.
  info,      ///< What the run is doing.
  warning,   ///< Something is probably not what the user wants; the run continues.
  error,     ///< Something failed; the run may continue.
  critical,  ///< Nothing logs at this level. As a threshold it silences everything below.
};

/// Receives everything the library says. The default sink writes to stderr.
///
/// Derive from it to send messages elsewhere. Thread-safety: `message` and `print` may be called
/// from any thread, also at the same time.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// Takes one line, without a line break, that has passed the level.
  virtual void message(LogLevel level, std::string_view line) = 0;
  /// Takes text as it stands: progress bars and tables. It may hold carriage returns.
  virtual void print(std::string_view text) = 0;
  /// Whether `print` writes to a terminal, where a line can be drawn over.
  virtual bool is_terminal() const { return false; }
  /// How many columns the terminal has now; none when that is not known. Asked before every
  /// drawing, because a terminal may be resized.
  virtual std::optional<int> columns() const { return std::nullopt; }
};

/// Replaces the sink of the process and returns the previous one. Null restores the default.
std::shared_ptr<LogSink> set_log_sink(std::shared_ptr<LogSink> sink);
/// The current sink; never null.
std::shared_ptr<LogSink> log_sink();

/// Drops messages below `level` from now on. The default is `warning`, as in transformers.
void set_log_level(LogLevel level);
/// The current level.
LogLevel log_level();

/// Sends one line to the sink unless it is below the level. Thread-safe, as are those below.
void log_message(LogLevel level, std::string_view line);
/// `log_message` at level `debug`.
inline void log_debug(std::string_view line) { log_message(LogLevel::debug, line); }
/// `log_message` at level `info`.
inline void log_info(std::string_view line) { log_message(LogLevel::info, line); }
/// `log_message` at level `warning`.
inline void log_warning(std::string_view line) { log_message(LogLevel::warning, line); }
/// `log_message` at level `error`.
inline void log_error(std::string_view line) { log_message(LogLevel::error, line); }

/// Warns only the first time this process is given this `line`.
void log_warning_once(const std::string& line);

/// Calls `print` of the current sink; the level does not matter.
void log_print(std::string_view text);

}  // namespace gradus
