#pragma once

#include <filesystem>
#include <memory>

namespace gradus {

/// The right to train into a folder: while one lives, no other process gets it for that folder.
///
/// It is an flock(2) on `.gradus.lock` in the folder, which also says who holds it. The system
/// takes it back when the process ends, however it ends. A program that this process starts does
/// not inherit it. The file is removed together with the lock; one that a killed process left is
/// used again.
///
/// Several locks of one process on one folder share it, so that a task and its Trainer may both
/// ask. Where a folder cannot be locked (a network disk without locks, no right to write), a
/// warning says so, and the lock protects nothing. Thread-safety: all functions may be called from
/// any thread.
class RunLock {
 public:
  /// Holds nothing.
  RunLock() = default;
  /// Locks `folder`, which must exist. Throws `Error` G-CKPT-7 when another process holds it.
  explicit RunLock(const std::filesystem::path& folder);

 private:
  struct Held;
  static std::shared_ptr<Held> acquire(const std::filesystem::path& folder);

  std::shared_ptr<Held> held_;
};

}  // namespace gradus
