#pragma once

#include <gradus/checkpoint/checkpoint_dir.h>

#include <optional>
#include <span>
#include <vector>

namespace gradus {

/// Decides which checkpoints of a run stay on disk.
///
/// A policy only decides; `CheckpointWriter` acts. It is asked after every complete save and
/// never sees a directory that is still being written.
/// Thread-safety: none needed, it has no state that changes.
class RotationPolicy {
 public:
  /// Keeps at most `limit` checkpoints; the newest and the best are always kept,
  /// so two may remain for `limit == 1` until training ends. Unset, zero or negative keeps all.
  explicit RotationPolicy(std::optional<int64_t> limit) : limit_(limit) {}

  /// The directories to delete, oldest first. `existing` is sorted by step; `written` is the step
  /// just saved, by default the largest. Steps beyond it are those of a run that was left, by going
  /// back to an earlier checkpoint or starting over: they count as older than all others.
  std::vector<CheckpointDir> to_delete(std::span<const CheckpointDir> existing,
                                       const std::optional<std::filesystem::path>& best,
                                       std::optional<int64_t> written = std::nullopt) const;

 private:
  std::optional<int64_t> limit_;
};

}  // namespace gradus
