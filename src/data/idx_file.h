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

/// `content`, unpacked where it begins as a gzip stream. Throws G-DATA-21 that names `where`.
std::string unpack_if_gzipped(std::string content, const std::string& where);

/// The same for a file. Throws G-IO-1 too.
std::string read_maybe_gzipped(const std::filesystem::path& file);

/// Takes `content` apart: magic number for bytes with `dimensions` dimensions, sizes, values.
/// Throws G-DATA-21 and G-DATA-22 that name `where`.
IdxFile parse_idx(std::string content, size_t dimensions, const std::string& where);

}  // namespace gradus::data
