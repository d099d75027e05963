#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/checksum.h>
#include <gradus/formats/safetensors.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gradus {

/// The files of a checkpoint that were written, by name.
using WrittenFiles = std::map<std::string, WrittenFile>;

/// Writes one or more files into a folder and says which. It holds values that no longer change, so
/// that it may be called on another thread while training continues.
using WriteFiles = std::function<WrittenFiles(const std::filesystem::path& folder)>;

/// Writes `tree` as the torch file `name`.
WriteFiles torch_file_writer(std::string name, StateTree tree);
/// Writes `text` as the file `name`.
WriteFiles text_file_writer(std::string name, std::string text);

/// A text in pieces that no longer change. Copies share them, so that a long text costs a save as
/// little as a short one.
using TextPieces = std::vector<std::shared_ptr<const std::string>>;
/// Writes the pieces one after the other as the file `name`.
WriteFiles text_file_writer(std::string name, TextPieces pieces);

/// Everything one checkpoint holds.
///
/// It does not know what the files are for; `RunCheckpoint` makes one from the parts of a run.
struct Snapshot {
  /// Called on the training thread, before training continues: for small files whose source may
  /// change later (config, tokenizer).
  std::vector<std::function<void(const std::filesystem::path& folder)>> side_files;
  /// Files with this in their names are written by other processes: the writer leaves them alone.
  /// Empty: there are none.
  std::string others = {};
  /// Called by the writer's thread, in this order.
  std::vector<WriteFiles> files;
};

/// Memory for the copies of a snapshot, kept from one save to the next: the first copy pays for
/// fresh pages, later ones only for the copying.
class SnapshotBuffers {
 public:
  /// Starts a new snapshot; the tensors of the one before must no longer be used.
  void begin() { next_ = 0; }
  /// A copy in host memory, which the next snapshot uses again.
  torch::Tensor copy(const torch::Tensor& tensor);
  /// Copies in host memory.
  NamedTensors copy(const NamedTensors& tensors);
  /// A copy with all tensors in host memory.
  StateTree copy(const StateTree& tree);

 private:
  std::vector<torch::Tensor> buffers_;
  size_t next_ = 0;
};

}  // namespace gradus
