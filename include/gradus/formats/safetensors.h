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

/// Tensors by name in a fixed order: a state dict.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// The strings under `__metadata__`: sorted by key when read, in the given order when written.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsFile {
  NamedTensors tensors;  ///< in the order of their bytes in the file
  SafetensorsMetadata metadata;
};

/// Opens a safetensors file by mapping it: nothing is copied, pages come in when a tensor is used.
///
/// The tensors are CPU views that keep the mapping alive, also after the file is deleted. The
/// mapping is private: writing to a tensor never reaches the file. A file must not be cut short in
/// place while it is mapped (replace it by renaming). A tensor whose bytes are not aligned for its
/// type is copied.
///
/// Everything the header says is checked before any tensor is made. Throws, naming file and tensor:
/// G-IO-1 cannot be opened, G-ST-1 length of the header, G-ST-2 header is not the expected JSON,
/// G-ST-3 a tensor's entry (dtype, shape, range), G-ST-4 ranges that overlap, leave holes or miss
/// the end.
SafetensorsFile read_safetensors(const std::filesystem::path& file);

/// Writes a file byte for byte as Python's `safetensors.torch.save_file` does (same order, header
/// and padding).
///
/// Tensors may lie anywhere in any layout of strides; each is brought to contiguous CPU memory only
/// while it is written, so the extra memory is one tensor. May be called from any thread as long as
/// nobody changes the tensors. Throws G-ST-5 (a name twice, not UTF-8 or reserved; a dtype or
/// layout that cannot be stored), G-IO-2; a failed write leaves an incomplete file behind: write
/// under a temporary name. A file of that name is replaced; views of it that `read_safetensors`
/// gave stay valid.
WrittenFile write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata = {{"format", "pt"}},
                              Sync sync = Sync::no);

/// "5MB", "50GB", "200 KB" as huggingface_hub reads them (units TB, GB, MB, KB of 1000, fractions
/// allowed), also KiB, MiB, GiB, TiB and plain bytes. Throws G-ST-6.
uint64_t parse_shard_size(std::string_view text);

/// One file of a state dict that was written.
struct WrittenShard {
  std::string file_name;
  WrittenFile written;
};

struct ShardOptions {
  uint64_t max_shard_size =
      50'000'000'000;  ///< bytes of tensors per file; a larger tensor gets a file of its own
  std::string stem = "model";  ///< the names begin with it
  Sync sync = Sync::no;
};

/// Writes `model.safetensors`, or, above `max_shard_size`, `model-00001-of-0000N.safetensors` …
/// with `model.safetensors.index.json`, cut as transformers cuts: in the given order, a new file
/// when the next tensor does not fit, tied tensors beside the first of them. Returns every file
/// written, the index last. All are written under other names and renamed at the end, so that the
/// tensors may be views of the files that are replaced, and a failed write leaves those as they
/// were. Files of an earlier, differently cut save under the same stem are removed afterwards.
std::vector<WrittenShard> write_safetensors_folder(const std::filesystem::path& folder,
                                                   const NamedTensors& tensors,
                                                   const ShardOptions& options = {});

/// Removes the weight files of an earlier save under `stem` that are not among `written`. A reader
/// would prefer a `model.safetensors` that was left there to newer shards.
void remove_stale_weights(const std::filesystem::path& folder,
                          const std::vector<WrittenShard>& written,
                          const std::string& stem = "model");

/// Reads what `write_safetensors_folder` or `save_pretrained` wrote: the single file or all shards
/// of the index. Throws G-ST-7 when neither is there, a shard is missing, or index and shards
/// disagree.
NamedTensors read_safetensors_folder(const std::filesystem::path& folder,
                                     const std::string& stem = "model");

}  // namespace gradus
