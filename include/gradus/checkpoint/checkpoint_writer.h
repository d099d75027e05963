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
/// A checkpoint is written as `.tmp-checkpoint-N-PID`, synced, renamed, and its parent synced
/// (`StagedFolder`); then the rotation policy is asked and acted on. A failed write removes what it
/// wrote and leaves every older checkpoint as it was. Thread-safety: called from the training
/// thread; at most one write is in progress.
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

  /// Waits for the write before, writes the side files, and starts a thread for the rest. Throws
  /// what the one before failed with.
  void start(Job job);
  /// Returns when nothing is being written. Throws `Error` G-CKPT-6 or what the write failed with,
  /// once.
  void wait();
  /// Memory for the next snapshot. Call `wait` before using it: the current write reads from it.
  SnapshotBuffers& buffers() { return buffers_; }

 private:
  std::thread thread_;
  std::exception_ptr failure_;
  SnapshotBuffers buffers_;
};

}  // namespace gradus
