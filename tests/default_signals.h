#pragma once

#include <signal.h>

namespace gradus::testing {

/// Signals have their default effect in a test program that includes this, however it was started:
/// under nohup and in the background of a script some are ignored, and gradus leaves those alone.
inline const bool kSignalsHaveTheirDefault = [] {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  return true;
}();

}  // namespace gradus::testing
