#pragma once

#include <gradus/core/state_tree.h>

#include <memory>

#include "formats/file_storage.h"

namespace gradus {

/// Whether the file begins as those of `torch.save` before version 1.6: pickles one after the
/// other, then the storages.
bool is_legacy_torch_file(const MappedFile& file);

/// Reads one, as `read_torch_file` does: without executing anything, every length checked. Throws
/// G-PT-1 to G-PT-5.
StateTree read_legacy_torch_file(const std::shared_ptr<MappedFile>& file);

}  // namespace gradus
