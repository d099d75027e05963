#pragma once

#include <gradus/formats/safetensors.h>

#include <filesystem>
#include <optional>
#include <string>

namespace gradus {

/// Reads the weights of a model folder. The first of these that exists is read: model.safetensors,
/// its shards, pytorch_model.bin, its shards, the parts of a `ShardedFolder`. Throws `Error` G-ST-7
/// when there is none, a shard is missing, or index and shards disagree.
NamedTensors read_weights_folder(const std::filesystem::path& folder);

/// Reads the weights of an adapter's folder: adapter_model.safetensors, its shards, or
/// adapter_model.bin of old versions of peft. Throws `Error` G-ST-7 when there are none.
NamedTensors read_adapter_folder(const std::filesystem::path& folder);

/// Why `read_weights_folder` would not find all files, for a message; `std::nullopt` when all are
/// there. Reads file names and the index only.
std::optional<std::string> weights_problem(const std::filesystem::path& folder);

}  // namespace gradus
