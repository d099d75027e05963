#pragma once

namespace gradus::kernels {

/// While one lives, the graphs that this thread builds are used for one backward pass and dropped.
/// A backward pass may then write its results over what it has read, which saves memory. Gradient
/// checkpointing, which computes a block once more for its backward pass, opens one.
class SingleUse {
 public:
  SingleUse();
  ~SingleUse();
  SingleUse(const SingleUse&) = delete;
  SingleUse& operator=(const SingleUse&) = delete;
  /// Whether one lives in this thread.
  static bool is_on();

 private:
  bool before_;
};

}  // namespace gradus::kernels
