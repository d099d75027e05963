#pragma once

#include <gradus/formats/safetensors.h>
#include <gradus/models/model.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradus {

struct TokenizerLike;

/// What a model's folder gets besides the model.
struct ModelFolderOptions {
  const TokenizerLike* tokenizer = nullptr;  ///< its files, where it has any
  nlohmann::ordered_json arguments = {};     ///< training_args.json; null: no such file
  std::string max_shard_size = "50GB";       ///< larger weights are cut into several files
};

/// The folder a model is saved to: weights, config.json, generation_config.json, the tokenizer's
/// files and training_args.json.
///
/// This is the only class that decides what such a folder holds. `Trainer::save_model`, every
/// checkpoint and `PreTrainedModel::save_pretrained` write through it; the model says which weights
/// go in (`Model::saved_weights`) and what stands beside them (`Model::save_config`).
/// Ownership: refers to the model and the tokenizer, which must outlive it.
/// Thread-safety: `write_weights` may be called from another thread once `weights` are copies.
class ModelFolder {
 public:
  /// Takes hold of the model's weights as they are, without a copy. Throws `Error` G-ST-6 for a
  /// shard size that cannot be read.
  explicit ModelFolder(const Model& model, ModelFolderOptions options = {});

  /// The tensors to write; a checkpoint puts copies in their place.
  NamedTensors weights;
  /// Whether `write_weights` writes them; not where the processes of a run write them in parts.
  bool has_weights = true;

  /// The files that the model and the tokenizer write themselves, into a folder that exists.
  void write_config(const std::filesystem::path& directory) const;
  /// The weights and training_args.json, synced. Gives every file written.
  std::vector<WrittenShard> write_weights(const std::filesystem::path& directory) const;
  /// Everything, into a folder that is created or may hold an earlier model. The files are written
  /// beside and moved in one by one at the end, so that a failure leaves an earlier model whole.
  void save(const std::filesystem::path& directory) const;

 private:
  const Model& model_;
  const TokenizerLike* tokenizer_;
  std::string arguments_;  ///< the text of training_args.json
  ShardOptions shards_;
};

/// Puts the weights of a saved folder into a model of the same structure. Tensors that the folder
/// lacks keep their values; these, and tensors the model does not have, are named in a warning.
/// Throws `Error` G-ST-7 when the folder has no weights, G-MODEL-2 when a shape differs.
void load_model_folder(Model& model, const std::filesystem::path& directory);

}  // namespace gradus
