#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace gradus {

enum class LogLevel { debug, info, warning, error, critical };

/// Where everything the library says goes. The default sink writes to stderr.
///
/// Thread-safety: `message` and `print` may be called from any thread.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// One finished line (without line break) that passed the level.
  virtual void message(LogLevel level, std::string_view line) = 0;
  /// Text as it stands: progress bars, tables. It may hold carriage returns.
  virtual void print(std::string_view text) = 0;
  /// Whether `print` reaches a terminal, where a line may be drawn over.
  virtual bool is_terminal() const { return false; }
};

/// Replaces the sink; null puts the default back. Returns the one before.
std::shared_ptr<LogSink> set_log_sink(std::shared_ptr<LogSink> sink);
std::shared_ptr<LogSink> log_sink();

/// Messages below `level` are dropped. The default is `warning`, as in transformers.
void set_log_level(LogLevel level);
LogLevel log_level();

void log_message(LogLevel level, std::string_view line);
inline void log_debug(std::string_view line) { log_message(LogLevel::debug, line); }
inline void log_info(std::string_view line) { log_message(LogLevel::info, line); }
inline void log_warning(std::string_view line) { log_message(LogLevel::warning, line); }
inline void log_error(std::string_view line) { log_message(LogLevel::error, line); }

/// Says `line` only the first time in this process.
void log_warning_once(const std::string& line);

/// `print` of the current sink.
void log_print(std::string_view text);

}  // namespace gradus
