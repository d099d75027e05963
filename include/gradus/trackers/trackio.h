#pragma once

#include <gradus/trackers/tracker.h>

namespace gradus {

/// A tracker that writes the SQLite file of trackio, which `trackio show` displays.
///
/// The file is `folder`/PROJECT.db. The folder is TRACKIO_DIR of the environment, else trackio's
/// own in Hugging Face's cache; the project is the argument `project`. A run is called `run_name`,
/// or gets a name; one of that name that is there is continued. Keys, config and the number of
/// parameters are those of transformers' TrackioCallback. Spaces of the Hub are not used.
std::shared_ptr<Tracker> trackio_tracker(std::filesystem::path folder = {});

}  // namespace gradus
