#pragma once

#include <gradus/core/state_tree.h>

namespace gradus::hooks {

class Trainer;

/// Everything a run needs to go on, with the keys of trainer-tools' checkpoints. Further keys are
/// ours: `metrics` (sums of the epoch under way), `grads` (of an accumulation window that is open),
/// `loader` (state of a stream). Tensors are shared with the model and the optimizer.
StateTree trainer_snapshot(Trainer& trainer);

/// Puts a snapshot back. Throws `Error` of the part that cannot take it.
void load_snapshot(Trainer& trainer, const StateTree& snapshot);

/// The weights to keep at the end: the averaged ones where there are some.
StateTree exported_weights(Trainer& trainer);

}  // namespace gradus::hooks
