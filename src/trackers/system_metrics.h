#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace gradus {

/// Use of this machine, under the keys that wandb shows as "System".
///
/// The first sample has no shares of processor time, which are counted from one sample to the next.
/// What the system does not tell is left out.
/// Thread-safety: none.
class SystemMetrics {
 public:
  /// The present use.
  std::map<std::string, double> sample();

 private:
  int64_t busy_ = 0, total_ = 0;  // ticks of all processors
  int64_t process_ = 0;           // ticks of this process
};

}  // namespace gradus
