#pragma once

#include <gradus/core/metrics.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace gradus {

/// Sees what is going wrong in a run and says it in the log, each thing once, with what to do.
///
/// It is told what the loop knows anyway and never waits for a device. Times are in seconds.
class RunMonitor {
 public:
  /// A run begins at this time.
  void begin(double now);
  /// The loop has waited so long for a batch.
  void waited_for_data(double seconds) { waited_ += seconds; }
  /// Steps were logged: their loss and gradient norm, and how many losses so far were not finite.
  void logged(const Logs& logs, int64_t filtered_losses, double now);
  /// How busy the GPU is, in percent.
  void gpu_is_busy(double percent);
  /// A save had to wait so long for the one before to be on disk.
  void waited_for_save(double seconds, double now);
  /// What is free where checkpoints go, and what one takes.
  void disk_has(uint64_t free_bytes, uint64_t checkpoint_bytes,
                const std::filesystem::path& folder);

 private:
  void say_once(const std::string& topic, const std::string& text);

  std::set<std::string> said_;
  double last_log_ = 0, last_save_ = 0;
  double waited_ = 0;
  int64_t slow_logs_ = 0;  // in a row
  int64_t filtered_ = 0;
  std::deque<double> norms_;
  std::deque<double> busy_;
};

/// The bytes of the files of a folder, those below it included; 0 when it cannot be read.
uint64_t folder_bytes(const std::filesystem::path& folder);

}  // namespace gradus
