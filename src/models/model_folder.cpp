#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/formats/sharded_folder.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/models/model_folder.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/list_folder.h"
#include "core/mapped_reads.h"
#include "core/temporary_name.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// What saves that were killed have left in the folder.
void remove_leftovers(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(directory, ignored), end; entry != end;
       entry.increment(ignored))
    if (is_abandoned_temporary(entry->path().filename().string())) left.push_back(entry->path());
  for (const auto& path : left) fs::remove_all(path, ignored);
}

}  // namespace

ModelFolder::ModelFolder(const Model& model, ModelFolderOptions options)
    : model_(model), tokenizer_(options.tokenizer) {
  const auto saved = model.saved_weights();
  for (const auto& item : saved.tensors) weights.emplace_back(item.key(), item.value());
  shards_ = {.max_shard_size = parse_shard_size(options.max_shard_size),
             .stem = saved.stem,
             .sync = Sync::yes};
  if (!options.arguments.is_null()) arguments_ = dump_json(options.arguments, 2) + "\n";
}

void ModelFolder::write_config(const fs::path& directory) const {
  model_.save_config(directory);
  if (tokenizer_ != nullptr) tokenizer_->save_pretrained(directory);
}

std::vector<WrittenShard> ModelFolder::write_weights(const fs::path& directory) const {
  std::vector<WrittenShard> written;
  if (has_weights) written = write_safetensors_folder(directory, weights, shards_);
  if (arguments_.empty()) return written;
  write_file_atomically(directory / "training_args.json", arguments_);
  written.push_back({"training_args.json",
                     {arguments_.size(), checksum_of(arguments_.data(), arguments_.size())}});
  return written;
}

void ModelFolder::save(const fs::path& directory) const {
  make_directory(directory);
  remove_leftovers(directory);
  const auto temporary = directory / temporary_name("model");
  std::error_code ignored;
  make_directory(temporary);
  try {
    const auto written = write_weights(temporary);
    write_config(temporary);
    for (const auto& path : list_folder(temporary)) move_file(path, directory / path.filename());
    remove_stale_weights(directory, written, shards_.stem);
    fs::remove_all(temporary, ignored);
    sync_path(directory);
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void load_model_folder(Model& model, const fs::path& directory) {
  const auto expected = model.saved_weights();
  StateDict values;
  std::vector<std::string> unexpected, missing;
  const bool reads_any = expected.stem == "model" || ShardedFolder::exists(directory);
  for (const auto& [name, tensor] : reads_any ? read_weights_folder(directory)
                                              : read_safetensors_folder(directory, expected.stem)) {
    if (expected.tensors.contains(name))
      values.insert(name, tensor);
    else
      unexpected.push_back(name);
  }
  for (const auto& item : expected.tensors) {
    if (values.contains(item.key())) continue;
    missing.push_back(item.key());
    values.insert(item.key(), item.value());
  }
  if (!missing.empty())
    log_warning(fmt::format("There were missing keys in the checkpoint model loaded: {}.",
                            fmt::join(missing, ", ")));
  if (!unexpected.empty())
    log_warning(fmt::format("There were unexpected keys in the checkpoint model loaded: {}.",
                            fmt::join(unexpected, ", ")));
  read_mapped([&] { model.load_saved_weights(values); });
}

}  // namespace gradus
