#pragma once

#include <gradus/trackers/tracker.h>

namespace gradus {

/// A tracker that writes a table for spreadsheets and data frames: one row per log entry, one
/// column per key, the step first. A value that an entry does not have is empty.
///
/// An existing file is continued. A key that comes later adds a column, for which the file is
/// written anew. A resumed run drops the rows after its checkpoint. Rows are written by a thread of
/// the tracker's own, several times a second.
std::shared_ptr<Tracker> csv_tracker(const std::filesystem::path& file);

}  // namespace gradus
