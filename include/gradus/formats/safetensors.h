#pragma once

#include <gradus/formats/checksum.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus {

/// Tensors by name in a fixed order; a state dict.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// The strings under `__metadata__`. They are sorted by key when read, and written in the order
/// given.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// The content of one safetensors file.
struct SafetensorsFile {
  NamedTensors tensors;          ///< In the order of their bytes in the file.
  SafetensorsMetadata metadata;  ///< The file's `__metadata__`.
};

/// Opens a safetensors file by mapping it: nothing is copied, and pages are read when a tensor is
/// used.
///
/// The tensors are CPU views that keep the mapping alive, also after the file is deleted. The
/// mapping is private: writing to a tensor never reaches the file. Do not truncate a mapped file in
/// place; replace it by renaming. A tensor whose bytes are not aligned for its type is copied.
///
/// The whole header is checked before any tensor is made. Throws `Error`, naming file and tensor:
/// G-IO-1 when the file cannot be opened, G-ST-1 for the header's length, G-ST-2 when the header is
/// not the expected JSON, G-ST-3 for a tensor's entry (dtype, shape, range), G-ST-4 for ranges that
/// overlap, leave gaps or do not reach the end.
SafetensorsFile read_safetensors(const std::filesystem::path& file);

/// Writes a file byte for byte as Python's `safetensors.torch.save_file` does: the same order,
/// header and padding.
///
/// Tensors may be on any device and have any strides. Each is copied to contiguous CPU memory only
/// while it is written, so the extra memory is one tensor. An existing file is replaced; views of
/// it from `read_safetensors` stay valid. May be called from any thread while nobody changes the
/// tensors.
///
/// Throws `Error` G-ST-5 for a name that is used twice, reserved or not UTF-8, and for a dtype or
/// layout that cannot be stored; G-IO-2 when writing fails. A failed write leaves an incomplete
/// file, so write to a temporary name.
WrittenFile write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata = {{"format", "pt"}},
                              Sync sync = Sync::no);

/// The bytes of "5MB", "50GB" or "2GiB", as `parse_byte_size` reads them. Throws G-ST-6 for what is
/// no size.
uint64_t parse_shard_size(std::string_view text);

/// One of the files that `write_safetensors_folder` wrote.
struct WrittenShard {
  std::string file_name;  ///< Without the folder.
  WrittenFile written;    ///< Its size and checksum.
};

/// How a state dict is split into files.
struct ShardOptions {
  /// Bytes of tensors per file. A larger tensor gets a file of its own.
  uint64_t max_shard_size = 50'000'000'000;
  std::string stem = "model";  ///< The file names begin with it.
  Sync sync = Sync::no;        ///< Whether the files are flushed to disk.
};

/// Writes `model.safetensors`. Above `max_shard_size` it writes `model-00001-of-0000N.safetensors`
/// and so on with `model.safetensors.index.json`. Returns every file written, the index last.
///
/// The split is that of transformers: tensors in the given order, a new file when the next tensor
/// does not fit, tied tensors with the first of them. All files are written to temporary names and
/// renamed at the end. So the tensors may be views of the files being replaced, and a failed write
/// leaves those unchanged. Files of an earlier save with another split are removed afterwards.
std::vector<WrittenShard> write_safetensors_folder(const std::filesystem::path& folder,
                                                   const NamedTensors& tensors,
                                                   const ShardOptions& options = {});

/// Removes weight files of an earlier save under `stem` that are not in `written`. Otherwise a
/// reader would take a stale `model.safetensors` rather than the newer shards.
void remove_stale_weights(const std::filesystem::path& folder,
                          const std::vector<WrittenShard>& written,
                          const std::string& stem = "model");

/// Reads what `write_safetensors_folder` or transformers' `save_pretrained` wrote: the single file,
/// or all shards of the index. Throws `Error` G-ST-7 when neither exists, a shard is missing, or
/// index and shards disagree.
NamedTensors read_safetensors_folder(const std::filesystem::path& folder,
                                     const std::string& stem = "model");

}  // namespace gradus
