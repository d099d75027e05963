#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gradus {

/// Why `file` is not whole, judged by its kind, header and size; `std::nullopt` when nothing speaks
/// against it.
///
/// Known kinds are .safetensors (the header covers the file exactly), .pt, .pth and .bin of torch
/// (the archive has its end, and every entry lies inside) and .json (it parses). Tensors are not
/// read, so that gigabytes take milliseconds; damage inside of them is not found. Files of other
/// kinds, and what is no regular file, are not judged.
std::optional<std::string> file_problem(const std::filesystem::path& file);

}  // namespace gradus
