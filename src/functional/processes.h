#pragma once

#include <gradus/distributed/process_group.h>
#include <gradus/functional/train_state.h>

#include <memory>

namespace gradus::functional {

/// The processes that a launcher has started; null for one.
std::shared_ptr<ProcessGroup> processes();

/// Gives every process the parameters and the key of process 0.
TrainState replicated(TrainState state, ProcessGroup& group);

/// The key of process 0, in every process.
Key shared_key(Key key, ProcessGroup& group);

/// Throws `Error` G-DIST-5 when the processes have different parameters: a step took no mean.
void require_replicas(const TrainState& state, ProcessGroup& group);

}  // namespace gradus::functional
