#pragma once

#include <gradus/data/load_dataset.h>

#include <filesystem>
#include <string>
#include <vector>

namespace gradus::sources {

enum class Format { parquet, arrow, csv, json, json_lines, text, tokens };
enum class Compression { none, gzip, zstd };

/// One file to read, and how.
struct SourceFile {
  std::filesystem::path path = {};
  Format format = Format::text;
  Compression compression = Compression::none;
  char delimiter = ',';
};

/// Patterns, folders and extensions resolved: at least one file, all of one format.
std::vector<SourceFile> resolve_files(const DataFiles& files, const LoadOptions& options);

/// The bytes that a packed file of `size` bytes may unpack to.
int64_t expansion_limit(int64_t size, const LoadOptions& options);

/// The threads to use for an option where 0 means "choose".
int64_t thread_count(int64_t wanted);

}  // namespace gradus::sources
