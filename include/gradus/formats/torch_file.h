#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/checksum.h>

#include <cstddef>
#include <filesystem>
#include <functional>

namespace gradus {

/// Reads a file that `torch.save` wrote: `optimizer.pt`, `scheduler.pt`, `scaler.pt`,
/// `rng_state.pth`, `pytorch_model.bin`; also one from before version 1.6, whose storages are
/// copied where they do not lie aligned.
///
/// The pickle inside is interpreted by a small machine that only builds data. Names of classes and
/// functions are compared as text with a fixed list and never called; any other name is refused.
/// Tensors are private mapped views of the file (see `read_safetensors`) and share storage where
/// the file says so; all are on the CPU. A numpy array becomes a tensor, an OrderedDict a dict, a
/// Parameter its tensor, a set a list, a dtype or device its name, torch.Size a tuple.
///
/// Throws G-IO-1 cannot be opened; G-PT-1 not a file of torch.save, or damaged; G-PT-2 refused
/// name; G-PT-3 malformed pickle or a value that `StateTree` cannot hold; G-PT-4 a tensor that does
/// not fit its storage; G-PT-5 nested too deep or too large when expanded.
StateTree read_torch_file(const std::filesystem::path& file);

/// Writes a tree so that `torch.load(file, weights_only=True)` opens it: zip64 where needed,
/// 64-byte aligned storages, tensors that share a storage written once, location "cpu" whatever the
/// device.
///
/// May be called from any thread as long as nobody changes the tensors. Throws G-PT-6 (a value that
/// cannot be written: sparse or quantized tensor, text that is not UTF-8), G-IO-2; a failed write
/// leaves an incomplete file behind: write under a temporary name. A file of that name is replaced;
/// views of it that `read_torch_file` gave stay valid.
WrittenFile write_torch_file(const std::filesystem::path& file, const StateTree& tree,
                             Sync sync = Sync::no);

/// Takes the bytes of a file from first to last; throws to give up.
using ByteSink = std::function<void(const void* data, size_t size)>;

/// The same into a sink.
WrittenFile write_torch_file(const ByteSink& sink, const StateTree& tree);

}  // namespace gradus
