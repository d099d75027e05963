#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/checksum.h>

#include <cstddef>
#include <filesystem>
#include <functional>

namespace gradus {

/// Reads a file that `torch.save` wrote: `optimizer.pt`, `scheduler.pt`, `scaler.pt`,
/// `rng_state.pth`, `pytorch_model.bin`. Files from before torch 1.6 are read, too.
///
/// No code of the file runs: the pickle inside is interpreted by a small machine that only builds
/// data. Names of classes and functions are compared with a fixed list and never called; any other
/// name is refused. Tensors are on the CPU. They are private mapped views of the file (see
/// `read_safetensors`) and share storage where the file says so; storages that are not aligned are
/// copied. A numpy array becomes a tensor, an OrderedDict a dict, a Parameter its tensor, a set a
/// list, a dtype or device its name, a torch.Size a tuple.
///
/// Checksums in the file are compared, which reads all of it once. `torch.load` ignores them.
///
/// Throws `Error` G-IO-1 when the file cannot be opened, G-PT-1 when `torch.save` did not write it
/// or it is damaged, G-PT-2 for a refused name, G-PT-3 for a malformed pickle or a value that
/// `StateTree` cannot hold, G-PT-4 for a tensor that does not fit its storage, and G-PT-5 for data
/// nested too deeply or too large when expanded.
StateTree read_torch_file(const std::filesystem::path& file);

/// Writes a tree that `torch.load(file, weights_only=True)` opens. Storages are aligned to 64 bytes
/// and marked as on the CPU. A storage that several tensors share is written once.
///
/// An existing file is replaced; views of it from `read_torch_file` stay valid. May be called from
/// any thread while nobody changes the tensors. Throws `Error` G-PT-6 for a value that cannot be
/// written (a sparse or quantized tensor, text that is not UTF-8) and G-IO-2. A failed write leaves
/// an incomplete file, so write to a temporary name.
WrittenFile write_torch_file(const std::filesystem::path& file, const StateTree& tree,
                             Sync sync = Sync::no);

/// Receives the bytes of a file in order. It may throw to stop the writer.
using ByteSink = std::function<void(const void* data, size_t size)>;

/// Writes the same bytes to `sink` instead of a file.
WrittenFile write_torch_file(const ByteSink& sink, const StateTree& tree);

}  // namespace gradus
