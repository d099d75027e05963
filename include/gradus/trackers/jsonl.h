#pragma once

#include <gradus/trackers/tracker.h>

namespace gradus {

/// A tracker that appends one JSON object per entry: {"step": 8, "loss": 0.5}.
///
/// Each line is written at once, so a killed process loses none and a reader sees whole lines. An
/// existing file is continued; a last line that was cut off is removed first. After a resume the
/// same step may stand there twice: the later line counts. The file and its folder are made at the
/// first entry.
std::shared_ptr<Tracker> jsonl_logger(const std::filesystem::path& file);

}  // namespace gradus
