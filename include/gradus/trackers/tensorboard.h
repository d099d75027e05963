#pragma once

#include <gradus/trackers/tracker.h>

#include <optional>

namespace gradus {

/// A tracker that writes TensorBoard event files: scalars, the arguments and the model's config as
/// text, and the arguments as hyperparameters.
///
/// The folder is `log_dir`, else the environment's TENSORBOARD_LOGGING_DIR, else
/// `output_dir`/runs/DATE_HOST as transformers names it; it is made at the first entry. Entries are
/// written by a thread of the tracker's own, several times a second.
///
/// A tracker writes one file: what is logged after `finish`, such as an evaluation after training,
/// is appended to it. A folder that holds events of earlier processes is continued in a new file,
/// whose name sorts last because TensorBoard reads the files in that order. Only `training_begins`
/// marks what is there for later steps as superseded.
std::shared_ptr<Tracker> tensorboard_tracker(
    const std::filesystem::path& output_dir,
    std::optional<std::filesystem::path> log_dir = std::nullopt);

/// "Nov15_05-20-49_myhost".
std::string tensorboard_run_name();

}  // namespace gradus
