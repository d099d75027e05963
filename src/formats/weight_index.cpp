#include "formats/weight_index.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include <set>
#include <unordered_set>

namespace gradus::formats {
namespace fs = std::filesystem;

WeightIndex read_weight_index(const fs::path& index_file) {
  const auto index = read_json(index_file);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return {{}, index_file.filename().string() + " has no object weight_map"};
  if (index["weight_map"].empty())
    return {{}, index_file.filename().string() + " names no tensors: its weight_map is empty"};
  WeightIndex result;
  std::unordered_set<std::string> present;  // a model of 100,000 tensors has few files
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) return {{}, "weight_map entry '" + name + "' is not a file name"};
    const auto file = shard.get<std::string>();
    if (file.empty() || fs::path(file).filename() != fs::path(file))
      return {{}, "weight_map names '" + file + "', expected a file of the same folder"};
    std::error_code ignored;  // a name may be too long to be one
    if (!present.contains(file)) {
      if (!fs::exists(index_file.parent_path() / file, ignored))
        return {{}, "the index names " + file + ", which is missing"};
      present.insert(file);
    }
    result.files[name] = file;
  }
  return result;
}

NamedTensors read_indexed(const fs::path& index_file,
                          const std::function<NamedTensors(const fs::path& file)>& read_file) {
  const auto folder = index_file.parent_path();
  const auto index = read_weight_index(index_file);
  if (!index.problem.empty()) throw_incomplete(folder, index.problem);
  std::set<std::string> files;
  for (const auto& [name, file] : index.files) files.insert(file);
  NamedTensors tensors;
  std::unordered_set<std::string> found;
  for (const auto& file : files) {
    for (auto& [name, tensor] : read_file(folder / file)) {
      const auto entry = index.files.find(name);
      if (entry == index.files.end() || entry->second != file)
        continue;  // as transformers: the index decides
      found.insert(name);
      tensors.emplace_back(std::move(name), std::move(tensor));
    }
  }
  for (const auto& [name, file] : index.files)
    if (!found.contains(name))
      throw_incomplete(folder, "the index says that " + file + " holds tensor '" + name +
                                   "', which it does not");
  return tensors;
}

void throw_incomplete(const fs::path& folder, const std::string& problem) {
  throw Error("G-ST-7", ErrorKind::model,
              "cannot read the weights in " + folder.string() + ": " + problem,
              "The folder is incomplete. Copy all files of the model, or save it again.");
}

}  // namespace gradus::formats
