#include "train/sharded_save.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/sharded_folder.h>
#include <gradus/formats/torch_file.h>

#include <thread>

namespace gradus {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLook = 10ms;  // how often the first process looks for the others' files
constexpr auto kGrace = 2s;   // what was written before a process was lost still counts

fs::path note_of(const fs::path& file) { return file.string() + ".note"; }

// Under a temporary name first: a file that is there is complete.
std::pair<std::string, WrittenFile> write_parts(const fs::path& folder, const ShardOfRun& shard) {
  const auto name = ShardedFolder::file_name(shard.rank, shard.count);
  const fs::path temporary = folder / (name + ".tmp");
  const auto written = write_torch_file(temporary, shard.parts, Sync::yes);
  fs::rename(temporary, folder / name);
  return {name, written};
}

// What a process says of its file: size and checksum, or why there is none.
std::optional<WrittenFile> read_note(const fs::path& note, int64_t rank) {
  if (!fs::exists(note)) return std::nullopt;
  const auto said = read_json(note);
  if (const auto failure = said.find("failure"); failure != said.end())
    throw Error(
        "G-CKPT-6", ErrorKind::checkpoint,
        fmt::format("process {} could not write its part: {}", rank, failure->get<std::string>()));
  return WrittenFile{said.at("size").get<uint64_t>(), said.at("checksum").get<uint32_t>()};
}

WrittenFiles wait_for_parts(const fs::path& folder, int64_t count, const ShardCollection& how) {
  WrittenFiles found;
  const auto begin = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> hopeless_since;
  for (int64_t rank = 1; rank < count;) {
    const auto name = ShardedFolder::file_name(rank, count);
    if (const auto written = read_note(note_of(folder / name), rank)) {
      found[name] = *written;
      fs::remove(note_of(folder / name));
      ++rank;
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!hopeless_since && how.is_hopeless()) hopeless_since = now;
    if (now - begin > how.timeout || (hopeless_since && now - *hopeless_since > kGrace))
      throw Error(
          "G-CKPT-6", ErrorKind::checkpoint,
          fmt::format("process {} of {} has not written its part of the checkpoint", rank, count));
    std::this_thread::sleep_for(kLook);
  }
  return found;
}

}  // namespace

ShardOfRun::ShardOfRun(const SavedWeights& weights, const Strategy& strategy,
                       const std::optional<StateTree>& optimizer_state)
    : rank(strategy.rank()), count(strategy.world_size()) {
  auto split = StateTree::dict(), whole = StateTree::dict();
  auto names = json::array();
  for (const auto& item : weights.tensors) {
    names.push_back({{"name", item.key()}, {"shape", item.value().sizes().vec()}});
    const auto held = strategy.held_part(item.value());
    if (!held && rank == 0) whole.set(item.key(), item.value());
    if (held && held->values.numel() > 0)
      split.set(item.key(), StateTree::dict().set("begin", held->begin).set("part", held->values));
  }
  parts = StateTree::dict().set("weights", std::move(split)).set("whole", std::move(whole));
  index = {{"format", "gradus-shards"},
           {"version", 1},
           {"processes", count},
           {"stem", weights.stem},
           {"weights", names}};
  if (!optimizer_state) return;
  auto begins = StateTree::dict();
  auto shapes = json::array();
  const auto parameters = strategy.numbered_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    shapes.push_back(parameters[i].sizes().vec());
    if (const auto range = strategy.held_range(int64_t(i))) begins.set(int64_t(i), range->first);
  }
  index["parameters"] = shapes;
  parts.set("optimizer", *optimizer_state).set("begins", std::move(begins));
}

WriteFiles shard_writer(ShardOfRun shard) {
  return [shard = std::move(shard)](const fs::path& folder) {
    const auto note = note_of(folder / ShardedFolder::file_name(shard.rank, shard.count));
    try {
      const auto [name, written] = write_parts(folder, shard);
      write_file_atomically(
          note, dump_json(json{{"size", written.size}, {"checksum", written.checksum}}));
      return WrittenFiles{{name, written}};
    } catch (const std::exception& error) {
      try {
        write_file_atomically(note, dump_json(json{{"failure", error.what()}}));
      } catch (const std::exception&) {  // then the first process waits in vain, for its time
      }
      throw;
    }
  };
}

WriteFiles shards_collector(ShardOfRun shard, ShardCollection how) {
  return [shard = std::move(shard), how = std::move(how)](const fs::path& folder) {
    WrittenFiles files{write_parts(folder, shard)};
    files.merge(wait_for_parts(folder, shard.count, how));
    const auto text = dump_json(shard.index, 1) + "\n";
    write_file_atomically(folder / ShardedFolder::kIndex, text);
    files[ShardedFolder::kIndex] = {text.size(), checksum_of(text.data(), text.size())};
    if (!how.consolidated) return files;
    WrittenFiles plain;
    for (const auto& file : write_consolidated(ShardedFolder(folder), folder, *how.consolidated))
      plain[file.file_name] = file.written;
    for (const auto& [name, written] : files) fs::remove(folder / name);
    return plain;
  };
}

}  // namespace gradus
