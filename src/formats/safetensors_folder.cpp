#include <gradus/core/byte_size.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>

#include <fmt/format.h>

#include <map>
#include <regex>
#include <set>

#include "core/list_folder.h"
#include "core/temporary_name.h"
#include "formats/output_file.h"
#include "formats/weight_index.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

uint64_t bytes_of(const torch::Tensor& tensor) {
  return tensor.defined() ? uint64_t(tensor.numel()) * tensor.element_size() : 0;
}

/// Where the tensor's data lies; null when it has none (`write_safetensors` refuses such tensors by
/// name).
const void* memory_of(const torch::Tensor& tensor) {
  return bytes_of(tensor) > 0 && tensor.has_storage() && !tensor.is_meta() ? tensor.const_data_ptr()
                                                                           : nullptr;
}

/// Which tensors go into which file, as huggingface_hub's split_torch_state_dict_into_shards
/// decides.
std::vector<NamedTensors> split(const NamedTensors& tensors, uint64_t max_size) {
  using Shard = std::shared_ptr<NamedTensors>;
  std::vector<Shard> shards;
  std::map<std::pair<const void*, uint64_t>, Shard>
      by_memory;  // where the first tensor over that memory went
  auto current = std::make_shared<NamedTensors>();
  uint64_t current_size = 0;
  std::vector<std::pair<Shard, size_t>> tied;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto size = bytes_of(tensors[i].second);
    const auto key = std::pair(memory_of(tensors[i].second), size);
    if (const auto found = by_memory.find(key); key.first != nullptr && found != by_memory.end()) {
      tied.emplace_back(found->second, i);
      continue;
    }
    if (size > max_size) {
      shards.push_back(std::make_shared<NamedTensors>(NamedTensors{tensors[i]}));
      by_memory[key] = shards.back();
      continue;
    }
    if (current_size + size > max_size) {
      shards.push_back(std::exchange(current, std::make_shared<NamedTensors>()));
      current_size = 0;
    }
    current->push_back(tensors[i]);
    current_size += size;
    by_memory[key] = current;
  }
  if (!current->empty() || shards.empty()) shards.push_back(current);
  for (const auto& [shard, index] : tied) shard->push_back(tensors[index]);
  std::vector<NamedTensors> result;
  for (auto& shard : shards) result.push_back(std::move(*shard));
  return result;
}

std::string index_text(const std::vector<NamedTensors>& shards,
                       const std::vector<std::string>& names) {
  nlohmann::json weight_map = nlohmann::json::object();
  uint64_t total_size = 0;
  int64_t total_parameters = 0;
  std::set<const void*> seen;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const auto& [name, tensor] : shards[i]) {
      weight_map[name] = names[i];
      if (const void* memory = memory_of(tensor); memory != nullptr && !seen.insert(memory).second)
        continue;
      total_size += bytes_of(tensor);
      total_parameters += tensor.numel();
    }
  }
  const nlohmann::json metadata = {{"total_parameters", total_parameters},
                                   {"total_size", total_size}};
  return dump_json(nlohmann::json{{"metadata", metadata}, {"weight_map", weight_map}}, 2) + "\n";
}

WrittenFile write_text(const fs::path& file, const std::string& text, Sync sync) {
  OutputFile output(file);
  output.write(text.data(), text.size());
  output.close(sync);
  return {text.size(), checksum_of(text.data(), text.size())};
}

}  // namespace

uint64_t parse_shard_size(std::string_view text) {
  if (const auto bytes = parse_byte_size(text)) return *bytes;
  throw Error("G-ST-6", ErrorKind::usage, fmt::format("the shard size '{}' cannot be read", text),
              "Give a number with KB, MB, GB or TB, such as 500MB or 50GB.");
}

std::vector<WrittenShard> write_safetensors_folder(const fs::path& folder,
                                                   const NamedTensors& tensors,
                                                   const ShardOptions& options) {
  const auto shards = split(tensors, options.max_shard_size);
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i)
    names.push_back(shards.size() == 1 ? options.stem + ".safetensors"
                                       : fmt::format("{}-{:05d}-of-{:05d}.safetensors",
                                                     options.stem, i + 1, shards.size()));
  // Under other names first: the tensors may be views of the very files that are there
  // (`read_safetensors` maps them), and a failure must not cost those.
  std::map<std::string, fs::path> places;
  const auto temporary = [&](const std::string& name) {
    auto& place = places[name];
    if (place.empty()) place = folder / temporary_name(name);
    return place;
  };
  std::vector<WrittenShard> written;
  try {
    for (size_t i = 0; i < shards.size(); ++i)
      written.push_back({names[i], write_safetensors(temporary(names[i]), shards[i],
                                                     {{"format", "pt"}}, options.sync)});
    if (shards.size() > 1) {
      const auto index = options.stem + ".safetensors.index.json";
      written.push_back(
          {index, write_text(temporary(index), index_text(shards, names), options.sync)});
    }
    for (const auto& shard : written)
      move_file(temporary(shard.file_name), folder / shard.file_name);
  } catch (...) {
    std::error_code ignored;
    for (const auto& [name, place] : places) fs::remove(place, ignored);
    throw;
  }
  remove_stale_weights(folder, written, options.stem);
  return written;
}

void remove_stale_weights(const fs::path& folder, const std::vector<WrittenShard>& written,
                          const std::string& stem) {
  static const std::regex kShard(R"(-\d{5}-of-\d{5}\.safetensors)");
  std::set<std::string> fresh;
  for (const auto& shard : written) fresh.insert(shard.file_name);
  for (const auto& path : list_folder(folder)) {
    const auto name = path.filename().string();
    if (!name.starts_with(stem) || fresh.contains(name)) continue;
    const auto rest = name.substr(stem.size());
    if (rest == ".safetensors" || rest == ".safetensors.index.json" ||
        std::regex_match(rest, kShard)) {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  }
}

NamedTensors read_safetensors_folder(const fs::path& folder, const std::string& stem) {
  const auto single = folder / (stem + ".safetensors");
  const auto index = folder / (stem + ".safetensors.index.json");
  if (fs::exists(single)) return read_safetensors(single).tensors;
  if (!fs::exists(index))
    formats::throw_incomplete(folder, "neither " + single.filename().string() + " nor " +
                                          index.filename().string() + " exists");
  return formats::read_indexed(index,
                               [](const fs::path& file) { return read_safetensors(file).tensors; });
}

}  // namespace gradus
