#pragma once

#include <filesystem>
#include <memory>

#include "data/sources/byte_stream.h"

namespace gradus::sources {

/// The unpacked bytes of a .zst file, through Arrow's codec. Throws G-SRC-9 without Arrow.
std::unique_ptr<ByteStream> open_zstd_stream(const std::filesystem::path& path);

}  // namespace gradus::sources
