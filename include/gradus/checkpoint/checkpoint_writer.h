#pragma once

#include <gradus/checkpoint/rotation_policy.h>
#include <gradus/checkpoint/snapshot.h>
#include <gradus/core/error.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace gradus {

class StagedFolder;

/// Puts snapshots on disk in a thread of its own, so that a directory is complete and verified or
/// does not exist.
///
/// A checkpoint is written as `.tmp-checkpoint-N-PID-TOKEN`, synced, renamed, and its parent synced
/// (`StagedFolder`); then the rotation policy is asked and acted on. A failed write is logged as a
/// warning at once. It removes what it wrote and leaves every older checkpoint as it was: nothing
/// is rotated away for a checkpoint that does not exist. Thread-safety: called from the training
/// thread; at most one write is in progress.
class CheckpointWriter {
 public:
  /// Waits for the write in progress.
  ~CheckpointWriter();

  /// One checkpoint to write.
  struct Job {
    /// The run's output folder.
    std::filesystem::path run_dir = {};
    /// The step in the name of the checkpoint's folder.
    int64_t step = 0;
    /// What goes into it.
    Snapshot snapshot = {};
    /// Which older checkpoints are deleted afterwards.
    RotationPolicy rotation{std::nullopt};
    std::optional<std::filesystem::path> best = std::nullopt;  ///< never rotated away
    /// What a failure means for the run; ends the warning about it.
    std::string if_it_fails = {};
    /// The folder to write to and publish; null: a new one. Several processes may write to it.
    std::shared_ptr<StagedFolder> folder = nullptr;
    /// Not empty: only the snapshot's files are written, to this folder of another process, which
    /// publishes it.
    std::filesystem::path into = {};
  };

  /// What became of a job.
  struct Outcome {
    /// Its step.
    int64_t step = 0;
    /// Why nothing was written: an `Error` G-CKPT-6; none when the checkpoint is complete.
    std::optional<Error> failure = {};
  };

  /// Waits for the write before, writes the side files, and starts a thread for the rest. Throws
  /// what the one before failed with, unless `take_outcome` has given it. What fails here is an
  /// outcome, as what fails in the thread.
  void start(Job job);
  /// Returns when nothing is being written. Throws `Error` G-CKPT-6 when the write had failed,
  /// unless that was said before by `take_outcome` or by this function.
  void wait();
  /// What became of the last job; none while it is being written, and when it was asked before.
  /// Does not wait.
  std::optional<Outcome> take_outcome();
  /// The same, after waiting for a write in progress.
  std::optional<Outcome> wait_for_outcome();
  /// Memory for the next snapshot. Call `wait` or `wait_for_outcome` before using it: the current
  /// write reads from it.
  SnapshotBuffers& buffers() { return buffers_; }

 private:
  void attempt(const Job& job, const std::function<void()>& work);

  std::thread thread_;
  std::atomic<bool> has_ended_ = true;  // what the thread leaves in outcome_ may be read
  std::optional<Outcome> outcome_;
  SnapshotBuffers buffers_;
};

}  // namespace gradus
