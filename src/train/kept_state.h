#pragma once

#include <gradus/checkpoint/snapshot.h>
#include <gradus/formats/rng_state.h>
#include <gradus/train/trainer_state.h>

namespace gradus {

/// The state of a run in host memory, to go back to when the loss has a spike. It holds what a
/// checkpoint holds; its memory is used again by the next one.
struct KeptState {
  SnapshotBuffers buffers;
  std::vector<torch::Tensor> weights;  ///< parameters, then buffers of the model
  StateTree optimizer, schedule;
  std::optional<StateTree> scaler;
  RngState random;
  TrainerState state;
  nlohmann::json saved;  ///< what gradus_state.json would hold
};

}  // namespace gradus
