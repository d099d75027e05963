#include <gradus/core/log.h>
#include <gradus/core/printable.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <set>

namespace gradus {
namespace {

class StderrSink : public LogSink {
 public:
  void message(LogLevel level, std::string_view line) override {
    std::string text = level >= LogLevel::warning
                           ? std::string(level == LogLevel::warning ? "warning: " : "error: ")
                           : "";
    text.append(line).push_back('\n');
    print(text);
  }
  void print(std::string_view text) override {
    const std::scoped_lock lock(mutex_);
    while (!text.empty()) {
      const auto n = ::write(STDERR_FILENO, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // nothing sensible can be done about a closed stderr
      text.remove_prefix(size_t(n));
    }
  }
  bool is_terminal() const override { return ::isatty(STDERR_FILENO) == 1; }
  std::optional<int> columns() const override {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return std::nullopt;
    if (size.ws_col > 0) return size.ws_col;
    // A terminal that does not know its width, such as a serial line.
    const char* named = std::getenv("COLUMNS");
    const int columns = named == nullptr ? 0 : std::atoi(named);
    return columns > 0 ? columns : 80;
  }

 private:
  std::mutex mutex_;
};

struct Log {
  std::mutex mutex;
  std::shared_ptr<LogSink> sink = std::make_shared<StderrSink>();
  std::atomic<LogLevel> level = LogLevel::warning;
  std::set<std::string> said;
};

// Never destroyed: messages may come from static destructors.
Log& the_log() {
  static auto& log = *new Log;
  return log;
}

}  // namespace

std::shared_ptr<LogSink> set_log_sink(std::shared_ptr<LogSink> sink) {
  if (!sink) sink = std::make_shared<StderrSink>();
  const std::scoped_lock lock(the_log().mutex);
  return std::exchange(the_log().sink, std::move(sink));
}

std::shared_ptr<LogSink> log_sink() {
  const std::scoped_lock lock(the_log().mutex);
  return the_log().sink;
}

void set_log_level(LogLevel level) { the_log().level = level; }
LogLevel log_level() { return the_log().level; }

void log_message(LogLevel level, std::string_view line) {
  if (level >= log_level()) log_sink()->message(level, printable(line));
}

void log_warning_once(const std::string& line) {
  {
    const std::scoped_lock lock(the_log().mutex);
    if (!the_log().said.insert(line).second) return;
  }
  log_warning(line);
}

void log_print(std::string_view text) { log_sink()->print(text); }

}  // namespace gradus
