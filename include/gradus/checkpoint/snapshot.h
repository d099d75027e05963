#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/rng_state.h>
#include <gradus/formats/safetensors.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// Everything one checkpoint holds, as values that no longer change.
///
/// Tensors are copies (`SnapshotBuffers`), so that training goes on while a thread writes them.
struct Snapshot {
  /// The model's weights.
  NamedTensors weights;
  /// Bytes of one weights file at most.
  uint64_t max_shard_size = 50'000'000'000;
  /// State of the optimizer, if it is saved.
  std::optional<StateTree> optimizer;
  /// State of the schedule, if it is saved.
  std::optional<StateTree> scheduler;
  /// State of the GradScaler, if there is one.
  std::optional<StateTree> scaler;
  /// State of the random generators, if it is saved.
  std::optional<RngState> rng;
  std::map<std::string, std::string> texts;  ///< small files: trainer_state.json and the like
  /// Writes further small files (config, tokenizer) into the folder; called on the training thread.
  std::vector<std::function<void(const std::filesystem::path&)>> side_files;
};

/// Memory for the copies of a snapshot, kept from one save to the next: the first copy pays for
/// fresh pages, later ones only for the copying.
class SnapshotBuffers {
 public:
  /// Starts a new snapshot; the tensors of the one before must no longer be used.
  void begin() { next_ = 0; }
  /// A copy in host memory.
  torch::Tensor copy(const torch::Tensor& tensor);
  /// Copies in host memory.
  NamedTensors copy(const NamedTensors& tensors);
  /// A copy with all tensors in host memory.
  StateTree copy(const StateTree& tree);

 private:
  std::vector<torch::Tensor> buffers_;
  size_t next_ = 0;
};

}  // namespace gradus
