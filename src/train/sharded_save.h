#pragma once

#include <gradus/checkpoint/snapshot.h>
#include <gradus/core/state_tree.h>
#include <gradus/engine/strategy.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/model.h>
#include <gradus/optim/optimizer.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace gradus {

/// What the processes of a run write of a sharded model: each its parts. The files are those of
/// `ShardedFolder`.
struct ShardOfRun {
  /// The parts of this process; `optimizer_state` is the optimizer's, and none where it is not
  /// saved.
  ShardOfRun(const SavedWeights& weights, const Strategy& strategy,
             const std::optional<StateTree>& optimizer_state);

  StateTree parts;       ///< the file of this process
  nlohmann::json index;  ///< gradus_shards.json
  int64_t rank, count;   ///< of the processes
};

/// Writes the file of a process that is not the first, and a note that it is complete.
WriteFiles shard_writer(ShardOfRun shard);

/// How the first process puts a checkpoint together.
struct ShardCollection {
  std::chrono::milliseconds timeout{};  ///< How long it waits for the files of the others.
  std::function<bool()> is_hopeless;    ///< Whether the others are lost.
  /// Not empty: the parts become files of a run of one process.
  std::optional<ShardOptions> consolidated = std::nullopt;
};
/// Writes the file of the first process, waits for those of the others, and writes the index.
WriteFiles shards_collector(ShardOfRun shard, ShardCollection how);

}  // namespace gradus
