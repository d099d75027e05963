#pragma once

#include <gradus/trackers/tracker.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

namespace gradus {

/// One entry of the log, as a `TrackerWriter` gets it.
struct TrackedEntry {
  std::map<std::string, double> values;
  int64_t step = 0;
  double time = 0;          // seconds since 1970, when it was logged
  bool is_predict = false;  // the metrics of `predict`, which are no point of a curve
};

/// How a weight or a gradient is distributed, as a `TrackerWriter` gets it.
struct TrackedHistogram {
  std::string name;
  Histogram histogram;
  int64_t step = 0;
  double time = 0;  // as of an entry
};

/// What a run says about itself.
struct TrackedRun {
  nlohmann::json args;
  nlohmann::json model_config;
  std::optional<int64_t> parameters;
};

/// Writes the entries of a tracker that may be slow: a file, a database, a server.
///
/// All functions are called on a thread of its own (see `in_background`), one at a time. Each may
/// throw any `std::exception`; then it is called again later, with the same arguments or more.
class TrackerWriter {
 public:
  virtual ~TrackerWriter() = default;
  /// Before the first entry, and again with the first entry after `finish`.
  virtual void begin(const TrackedRun& run) = 0;
  /// As `Tracker::training_begins`.
  virtual void training_begins(int64_t) {}
  /// Writes entries, oldest first. Those written before an exception come again: leave none of them
  /// behind, or know them.
  virtual void write(std::span<const TrackedEntry> entries) = 0;
  /// Whether `write_histogram` does anything; the same at any time, from any thread.
  virtual bool takes_histograms() const { return false; }
  virtual void write_histogram(const TrackedHistogram&) {}
  /// Called between two `write`, at most once in `BackgroundOptions::interval`.
  virtual void idle() {}
  /// The run is over, for now.
  virtual void finish() {}
};

/// Bounds of a tracker in the background; tests make them small.
struct BackgroundOptions {
  /// Entries that wait at most. Beyond that the oldest are dropped.
  size_t capacity = 10000;
  /// How long entries are gathered before they are written together.
  std::chrono::milliseconds interval{250};
  /// The pause after a failure; it doubles with every further one, up to a hundred times this.
  std::chrono::milliseconds retry{500};
  /// How long `finish` waits for what is left.
  std::chrono::milliseconds finish_timeout{10000};
};

/// A tracker that hands everything to `writer` on a thread of its own.
///
/// `log` only puts an entry into a queue. The thread gives way to those that train: its priority is
/// lower. A failure is reported once, as a warning, and tried again
/// later. `finish` waits for the queue, but no longer than `finish_timeout`. A writer that does not
/// come back by then is left behind with its thread, and the run goes on without it. `name` is for
/// messages.
std::shared_ptr<Tracker> in_background(std::string name, std::unique_ptr<TrackerWriter> writer,
                                       BackgroundOptions options = {});

}  // namespace gradus
