#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

namespace gradus::kernels {

/// Work that was recorded once and can be run again; see `device::Graph`.
struct RecordedWork {
  virtual ~RecordedWork() = default;
  virtual void replay() = 0;
};

/// How work on a GPU is recorded, for models, which lie below `device`. It sets one when it has
/// loaded the plugin; a test may set one that only remembers the work.
struct Recorder {
  /// Whether work on this device can be recorded.
  std::function<bool(torch::Device)> takes;
  /// Calls `work` without running it, as `device::capture`.
  std::function<std::unique_ptr<RecordedWork>(const std::function<void()>& work)> record;
  /// A stream of its own while the result lives, as `device::own_stream`.
  std::function<std::shared_ptr<void>(torch::Device)> own_stream;
};

/// The recorder of this process; null without one. Returned by `set_recorder`: the one before.
std::shared_ptr<const Recorder> recorder();
std::shared_ptr<const Recorder> set_recorder(std::shared_ptr<const Recorder> recorder);

}  // namespace gradus::kernels
