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
  NamedTensors weights;
  uint64_t max_shard_size = 50'000'000'000;
  std::optional<StateTree> optimizer;
  std::optional<StateTree> scheduler;
  std::optional<StateTree> scaler;
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
  torch::Tensor copy(const torch::Tensor& tensor);
  NamedTensors copy(const NamedTensors& tensors);
  StateTree copy(const StateTree& tree);

 private:
  std::vector<torch::Tensor> buffers_;
  size_t next_ = 0;
};

}  // namespace gradus
