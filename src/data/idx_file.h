#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::data {

/// The content of an idx file of bytes.
struct IdxFile {
  std::vector<int64_t> shape;
  std::string values;
};

/// Takes `content` apart, which may be packed with gzip: magic number for bytes with `dimensions`
/// dimensions, sizes, values. The header is read first, and no more is unpacked than it states.
/// Throws G-DATA-21 and G-DATA-22 that name `where`.
IdxFile parse_idx(std::string_view content, size_t dimensions, const std::string& where);

/// The same for a file. Throws G-IO-1 too.
IdxFile read_idx(const std::filesystem::path& file, size_t dimensions);

}  // namespace gradus::data
