#include <gradus/core/error.h>
#include <gradus/formats/sharded_folder.h>
#include <gradus/formats/torch_file.h>
#include <gradus/formats/weights_folder.h>

#include "formats/weight_index.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// The tensors of one pytorch_model.bin: a flat dict, or one under "state_dict".
NamedTensors read_torch_weights(const fs::path& file) {
  NamedTensors tensors;
  const auto tree = read_torch_file(file);
  const auto* inner = tree.is_dict() ? tree.find(std::string("state_dict")) : nullptr;
  for (const auto& [key, value] : (inner != nullptr ? *inner : tree).entries()) {
    const auto* name = std::get_if<std::string>(&key);
    if (name != nullptr && value.is_tensor()) tensors.emplace_back(*name, value.as_tensor());
  }
  return tensors;
}

// Which of the four forms a folder has; empty when it has none.
fs::path weights_entry(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"})
    if (fs::exists(folder / name)) return folder / name;
  return {};
}

constexpr const char* kNoWeights =
    "it holds no weights: neither model.safetensors nor pytorch_model.bin, nor an index of their "
    "shards";

}  // namespace

NamedTensors read_weights_folder(const fs::path& folder) {
  const auto entry = weights_entry(folder);
  if (entry.empty() && ShardedFolder::exists(folder)) return ShardedFolder(folder).weights();
  if (entry.empty()) formats::throw_incomplete(folder, kNoWeights);
  if (entry.filename() == "pytorch_model.bin") return read_torch_weights(entry);
  if (entry.filename() == "pytorch_model.bin.index.json")
    return formats::read_indexed(entry, read_torch_weights);
  return read_safetensors_folder(folder);
}

NamedTensors read_adapter_folder(const fs::path& folder) {
  constexpr const char* stem = "adapter_model";
  const auto old = folder / "adapter_model.bin";
  const bool is_new = fs::exists(folder / "adapter_model.safetensors") ||
                      fs::exists(folder / "adapter_model.safetensors.index.json");
  return !is_new && fs::exists(old) ? read_torch_weights(old)
                                    : read_safetensors_folder(folder, stem);
}

std::optional<std::string> weights_problem(const fs::path& folder) try {
  const auto entry = weights_entry(folder);
  if (entry.empty() && ShardedFolder::exists(folder)) return std::nullopt;
  if (entry.empty()) return kNoWeights;
  const auto problem =
      entry.extension() == ".json" ? formats::read_weight_index(entry).problem : std::string();
  return problem.empty() ? std::nullopt : std::optional(problem);
} catch (const Error& error) {
  return error.message();
}

}  // namespace gradus
