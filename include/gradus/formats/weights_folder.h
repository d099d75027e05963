#pragma once

#include <gradus/formats/safetensors.h>

#include <filesystem>
#include <optional>
#include <string>

namespace gradus {

/// The tensors of a model's folder, in whichever of these forms comes first: model.safetensors, its
/// shards, pytorch_model.bin, its shards. Throws G-ST-7 when there is none, a shard is missing, or
/// index and shards disagree.
NamedTensors read_weights_folder(const std::filesystem::path& folder);

/// What keeps `read_weights_folder` from finding all files, for a message; nothing when they are
/// there. Looks at names and the index only.
std::optional<std::string> weights_problem(const std::filesystem::path& folder);

}  // namespace gradus
