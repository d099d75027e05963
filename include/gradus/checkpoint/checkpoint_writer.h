#pragma once

#include <gradus/checkpoint/rotation_policy.h>
#include <gradus/checkpoint/snapshot.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <thread>

namespace gradus {

/// Puts snapshots on disk in a thread of its own, so that a directory is complete and verified or
/// does not exist.
///
/// A checkpoint is written as `.tmp-checkpoint-N-PID`, synced, renamed, and its parent synced; then
/// the rotation policy is asked and acted on. A failed write removes what it wrote and leaves every
/// older checkpoint as it was. Thread-safety: called from the training thread; at most one write is
/// under way.
class CheckpointWriter {
 public:
  ~CheckpointWriter();

  /// One checkpoint to write.
  struct Job {
    /// The run's output folder.
    std::filesystem::path run_dir;
    /// The step in the name of the checkpoint's folder.
    int64_t step = 0;
    /// What goes into it.
    Snapshot snapshot;
    /// Which older checkpoints are deleted afterwards.
    RotationPolicy rotation{std::nullopt};
    std::optional<std::filesystem::path> best;  ///< never rotated away
  };

  /// Waits for the write before, then starts this one. Throws what the one before failed with.
  void start(Job job);
  /// Returns when nothing is being written. Throws `Error` G-CKPT-6 or what the write failed with,
  /// once.
  void wait();
  /// Memory for snapshots that is used again from one save to the next.
  SnapshotBuffers& buffers() { return buffers_; }

 private:
  std::thread thread_;
  std::exception_ptr failure_;
  SnapshotBuffers buffers_;
};

/// Writes one snapshot now, on this thread: what `CheckpointWriter` does on its own. `temporary` is
/// a folder beside the checkpoint's final place that exists and holds the side files already; it
/// becomes the checkpoint, or is left as it is when this throws.
void write_checkpoint(const CheckpointWriter::Job& job, const std::filesystem::path& temporary);

}  // namespace gradus
