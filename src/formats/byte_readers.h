#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/formats/safetensors.h>

#include "formats/file_storage.h"

namespace gradus {

/// The readers of this folder on bytes wherever they came from: what the public functions do after
/// opening the file.
SafetensorsFile read_safetensors(const std::shared_ptr<MappedFile>& file);
StateTree read_torch_file(const std::shared_ptr<MappedFile>& file);

}  // namespace gradus
