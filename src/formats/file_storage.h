#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "core/mapped_file.h"

namespace gradus {

/// Maps a file whose bytes become tensors: writes to these stay in this process. Throws G-IO-1.
std::shared_ptr<MappedFile> map_for_tensors(const std::filesystem::path& file);

/// A storage over `size` bytes from `offset` that keeps the file mapped. Copied when the bytes are
/// not aligned to `alignment`. The caller has checked the range.
at::Storage storage_over(const std::shared_ptr<MappedFile>& file, size_t offset, size_t size,
                         size_t alignment);

}  // namespace gradus
