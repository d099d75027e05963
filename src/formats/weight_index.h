#pragma once

#include <gradus/formats/safetensors.h>

#include <filesystem>
#include <map>

namespace gradus::formats {

/// What an index says (model.safetensors.index.json, pytorch_model.bin.index.json).
struct WeightIndex {
  std::map<std::string, std::string> files;  ///< tensor name → file of the same folder
  std::string problem = {};  ///< why it cannot be used: an entry that makes no sense, a file that
                             ///< is missing; empty when it can
};
WeightIndex read_weight_index(const std::filesystem::path& index_file);

/// The tensors that an index names, each from the file it names, which `read_file` reads. Throws
/// G-ST-7 when one is not there.
NamedTensors read_indexed(
    const std::filesystem::path& index_file,
    const std::function<NamedTensors(const std::filesystem::path& file)>& read_file);

/// Throws G-ST-7: the weights in `folder` cannot be read because of `problem`.
[[noreturn]] void throw_incomplete(const std::filesystem::path& folder, const std::string& problem);

}  // namespace gradus::formats
