#pragma once

#include <gradus/data/example.h>

#include <filesystem>
#include <span>

namespace gradus::sources {

/// Writes rows as a Parquet file, under a temporary name first. Columns and types are those of the
/// rows; nested and mixed cells are JSON text. Throws G-IO-2, and G-SRC-9 in a build without Arrow.
void write_parquet(const std::filesystem::path& file, std::span<const Example> rows);

}  // namespace gradus::sources
