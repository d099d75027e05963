#include <gradus/formats/sharded_folder.h>

#include <fmt/format.h>
#include <gradus/core/json.h>
#include <gradus/formats/torch_file.h>

#include <algorithm>
#include <set>

#include "core/mapped_reads.h"
#include "formats/weight_index.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

std::vector<int64_t> shape_of(const nlohmann::json& json) {
  return json.get<std::vector<int64_t>>();
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const auto size : shape) count *= size;
  return count;
}

// Copies what `part`, values from `begin` on, and `to`, values from `first` on, have in common.
// Their last dimensions count.
int64_t copy_overlap(torch::Tensor& to, int64_t first, const torch::Tensor& part, int64_t begin) {
  const auto from = std::max(first, begin);
  const auto end = std::min(first + to.size(-1), begin + part.size(-1));
  if (end <= from) return 0;
  to.narrow(-1, from - first, end - from).copy_(part.narrow(-1, from - begin, end - from));
  return end - from;
}

}  // namespace

std::string ShardedFolder::file_name(int64_t rank, int64_t count) {
  return fmt::format("{}_{:05}-of-{:05}.pt", kPrefix, rank, count);
}

bool ShardedFolder::exists(const fs::path& folder) { return fs::exists(folder / kIndex); }

ShardedFolder::ShardedFolder(const fs::path& folder) : folder_(folder) {
  try {
    index_ = read_json(folder / kIndex);
    if (index_.at("version").get<int64_t>() > 1)
      formats::throw_incomplete(folder, "gradus_shards.json is of a newer version");
    stem_ = index_.at("stem").get<std::string>();
    const auto count = index_.at("processes").get<int64_t>();
    if (count < 1 || count > 1'000'000)
      formats::throw_incomplete(folder, "gradus_shards.json names no processes");
    for (int64_t rank = 0; rank < count; ++rank) {
      const auto file = folder / file_name(rank, count);
      if (!fs::exists(file))
        formats::throw_incomplete(folder, file.filename().string() + " is missing");
      shards_.push_back(read_torch_file(file));
    }
  } catch (const nlohmann::json::exception& error) {
    formats::throw_incomplete(folder,
                              std::string("gradus_shards.json lacks something: ") + error.what());
  }
}

NamedTensors ShardedFolder::weights() const {
  NamedTensors found;
  read_mapped([&] {
    const torch::NoGradGuard no_grad;
    for (const auto& entry : index_.at("weights")) {
      const auto name = entry.at("name").get<std::string>();
      const auto shape = shape_of(entry.at("shape"));
      if (const auto* whole = shards_.front().at("whole").find(name)) {
        found.emplace_back(name, whole->as_tensor());
        continue;
      }
      torch::Tensor values;
      int64_t copied = 0;
      for (const auto& shard : shards_) {
        const auto* held = shard.at("weights").find(name);
        if (held == nullptr) continue;
        const auto& part = held->at("part").as_tensor();
        if (!values.defined()) values = torch::empty({elements_of(shape)}, part.options());
        copied += copy_overlap(values, 0, part, held->at("begin").as_int());
      }
      if (copied != elements_of(shape))
        formats::throw_incomplete(folder_, "parts of the weight " + name + " are missing");
      found.emplace_back(name, values.defined() ? values.view(shape) : torch::empty(shape));
    }
  });
  return found;
}

bool ShardedFolder::has_optimizer() const { return shards_.front().contains("optimizer"); }

// The entry of one parameter under "state".
StateTree ShardedFolder::parameter_state(int64_t number, const Range& range) const {
  struct Held {
    const StateTree* entry;
    int64_t begin;
  };
  std::vector<Held> held;
  for (const auto& shard : shards_) {
    const auto* entry = shard.at("optimizer").at("state").find(number);
    const auto* begin = shard.at("begins").find(number);
    if (entry == nullptr) continue;
    if (begin == nullptr) return *entry;  // it was never split
    held.push_back({entry, begin->as_int()});
  }
  const auto shape = shape_of(index_.at("parameters").at(size_t(number)));
  const auto first = range ? range->first : 0;
  const auto length = range ? range->second : elements_of(shape);
  auto whole = StateTree::dict();
  for (const auto& [name, value] : held.front().entry->entries()) {
    const bool is_part = value.is_tensor() && value.as_tensor().dim() > 0 &&
                         name != StateTree::Key(std::string("step"));
    if (!is_part) {
      whole.set(name, value);
      continue;
    }
    auto sizes = value.as_tensor().sizes().vec();
    sizes.back() = length;
    auto values = torch::empty(sizes, value.as_tensor().options());
    int64_t copied = 0;
    for (const auto& [entry, begin] : held)
      copied += copy_overlap(values, first, entry->at(name).as_tensor(), begin);
    if (copied != length)
      formats::throw_incomplete(
          folder_, fmt::format("parts of the state of parameter {} are missing", number));
    if (!range) {
      sizes.pop_back();
      sizes.insert(sizes.end(), shape.begin(), shape.end());
      values = values.view(sizes);
    }
    whole.set(name, values);
  }
  return whole;
}

StateTree ShardedFolder::optimizer(const std::function<Range(int64_t)>& range_of) const {
  StateTree tree;
  read_mapped([&] {
    const torch::NoGradGuard no_grad;
    std::set<int64_t> numbers;
    for (const auto& shard : shards_)
      for (const auto& [key, entry] : shard.at("optimizer").at("state").entries())
        if (const auto* number = std::get_if<int64_t>(&key)) numbers.insert(*number);
    auto states = StateTree::dict();
    for (const auto number : numbers) {
      const auto range = range_of ? range_of(number) : std::nullopt;
      if (range && range->second == 0) continue;
      states.set(number, parameter_state(number, range));
    }
    tree = shards_.front().at("optimizer");
    tree.set("state", std::move(states));
  });
  return tree;
}

std::vector<WrittenShard> write_consolidated(const ShardedFolder& from, const fs::path& to,
                                             ShardOptions options) {
  options.stem = from.stem();
  options.sync = Sync::yes;
  auto written = write_safetensors_folder(to, from.weights(), options);
  if (from.has_optimizer())
    written.push_back(
        {"optimizer.pt", write_torch_file(to / "optimizer.pt", from.optimizer(), Sync::yes)});
  return written;
}

}  // namespace gradus
