#pragma once

#include <gradus/trackers/tracker.h>

#include <optional>

namespace gradus {

/// A tracker that serves the newest values to Prometheus, at http://127.0.0.1:PORT/metrics, as
/// OpenMetrics text.
///
/// Each key of the log is a gauge: `loss` is gradus_loss{run="RUN"}. gradus_step and
/// gradus_log_time_seconds say which step the values are of and when they were logged. RUN is
/// `run_name`, else the output folder. `port` is GRADUS_OPENMETRICS_PORT of the environment, else
/// 9464; 0 lets the system choose, and a message at level info names the address. Only programs of
/// this machine reach it. It answers until the tracker is destroyed. A port that is taken costs the
/// endpoint, not the run.
std::shared_ptr<Tracker> openmetrics_tracker(std::optional<int> port = std::nullopt);

}  // namespace gradus
