#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace gradus {

/// A directory `checkpoint-N` of a run.
struct CheckpointDir {
  /// The folder.
  std::filesystem::path path;
  /// The step in its name.
  int64_t step = 0;
  /// Same folder and step.
  bool operator==(const CheckpointDir&) const = default;
};

/// `run_dir/checkpoint-STEP`.
std::filesystem::path checkpoint_path(const std::filesystem::path& run_dir, int64_t step);

/// The directories named `checkpoint-N`, by step. Empty when the folder does not exist.
std::vector<CheckpointDir> list_checkpoints(const std::filesystem::path& run_dir);

/// The one with the largest step, complete or not, as `get_last_checkpoint` of transformers.
std::optional<CheckpointDir> newest_checkpoint(const std::filesystem::path& run_dir);

/// The one with the largest step that passes `verify_checkpoint`.
std::optional<CheckpointDir> newest_complete_checkpoint(const std::filesystem::path& run_dir);

/// Deletes a checkpoint, as far as it can. It is renamed first, so that a kill in the middle never
/// leaves half a folder under a checkpoint's name; what is left under the other one is for
/// `remove_unfinished`.
void remove_checkpoint(const CheckpointDir& dir);

/// Removes folders that a killed process left half written under a temporary name.
void remove_unfinished(const std::filesystem::path& run_dir);

}  // namespace gradus
