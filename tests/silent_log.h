#pragma once

#include <gradus/core/log.h>

namespace gradus::testing {

/// Drops what the library says, so that a test program's own output stands alone:
/// `set_log_sink(std::make_shared<SilentLog>())`.
struct SilentLog : LogSink {
  void message(LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

}  // namespace gradus::testing
