#pragma once

#include <gradus/device/gpu.h>
#include <torch/types.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace gradus {

/// The exchanges of a group on its GPUs: c10d's group with NCCL, and its end.
///
/// Work on a GPU may wait for a process that is gone, and the host for that work. So a thread asks
/// now and then whether somebody gave up, and then ends all exchanges. At the end of the process a
/// channel that is still open is closed while the driver is there.
class NcclChannel {
 public:
  /// Connects the GPUs of all processes. Throws `Error` G-DIST-6 when this build has no NCCL.
  /// `somebody_gave_up` may throw, which means nothing.
  NcclChannel(const device::NcclOptions& options, std::function<bool()> somebody_gave_up);
  /// Waits for exchanges under way, unless they were aborted.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  torch::Device device() const { return device_; }
  /// Throws when the channel is closed.
  c10d::Backend& backend() const;
  /// Ends all exchanges, those that a GPU waits in, too. May be called from any thread.
  void abort() noexcept;
  /// Waits for exchanges under way, and closes the channel.
  void close() noexcept;

 private:
  enum class End { finish, abort };
  void end(End how) noexcept;
  void watch(const std::function<bool()>& somebody_gave_up);

  torch::Device device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  mutable std::mutex mutex_;
  bool is_ended_ = false;
  std::mutex watch_mutex_;
  std::condition_variable watch_ends_;
  bool is_watched_ = false;
  std::thread watch_;
};

}  // namespace gradus
