#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/safetensors.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// A checkpoint that several processes wrote together: each has a file with its parts of the
/// weights and of the optimizer's state, and gradus_shards.json says what they are parts of.
///
/// A file is a torch file, `gradus_shard_00001-of-00004.pt`. It holds a dict with "weights" (name
/// to
/// {"begin", "part"}), "whole" (weights that are not split), "optimizer" (the state dict with parts
/// in place of tensors) and "begins" (where the parts of each parameter begin). Parts are vectors:
/// slices of the tensor in the order of its memory.
/// Thread-safety: none.
class ShardedFolder {
 public:
  /// The name of the file that says what the parts belong to.
  static constexpr const char* kIndex = "gradus_shards.json";
  /// The names of all files of the parts begin so.
  static constexpr const char* kPrefix = "gradus_shard";
  /// The file of process `rank` of `count`.
  static std::string file_name(int64_t rank, int64_t count);
  /// Whether a folder is one.
  static bool exists(const std::filesystem::path& folder);

  /// Maps the files of all processes. Throws `Error` G-ST-7 when one is missing or damaged, and
  /// what `read_torch_file` throws.
  explicit ShardedFolder(const std::filesystem::path& folder);

  /// The stem of the files that whole weights would have: "model", or that of an adapter.
  const std::string& stem() const { return stem_; }
  /// The weights, put together.
  NamedTensors weights() const;
  /// Whether the folder holds the optimizer's state.
  bool has_optimizer() const;
  /// Which values of a parameter are wanted: begin and length; none: the whole in its own shape.
  using Range = std::optional<std::pair<int64_t, int64_t>>;
  /// The optimizer's state, put together. With `range_of`, only those values of each parameter
  /// number that it names, as vectors; parameters of which nothing is wanted are left out.
  StateTree optimizer(const std::function<Range(int64_t number)>& range_of = {}) const;

 private:
  StateTree parameter_state(int64_t number, const Range& range) const;

  std::filesystem::path folder_;
  nlohmann::json index_;
  std::string stem_;
  std::vector<StateTree> shards_;
};

/// Writes the weights and the optimizer's state of a sharded folder as files of a run of one
/// process: safetensors and optimizer.pt. Returns what was written.
std::vector<WrittenShard> write_consolidated(const ShardedFolder& from,
                                             const std::filesystem::path& to,
                                             ShardOptions options = {});

}  // namespace gradus
