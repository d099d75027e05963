#pragma once

namespace gradus {

/// A callback that holds something else in every process of a run.
class SharedState {
 public:
  virtual ~SharedState() = default;
  /// Called in every process before the first one takes the states of the callbacks for a
  /// checkpoint. Afterwards the state of the first process has what a resume needs in all of them.
  /// Not called in runs of a single process.
  virtual void gather_state() = 0;
};

}  // namespace gradus
