#pragma once

#include <gradus/train/callback.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gradus::cli {

/// A file of prepared data.
struct CachedFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  int64_t last_used = 0;  ///< seconds since 1970
};

/// The folder of prepared data: gradus/datasets in the user's cache folder.
std::filesystem::path data_cache_folder();
/// The files of the cache, the one that was not used for longest first, and what killed processes
/// have left of files. Unfinished files of processes that are at work are left out.
std::vector<CachedFile> cached_files();
/// Removes files until the rest takes at most `bytes`; those that are open stay usable. Returns
/// what was removed. Files used within the last `spared_seconds` stay.
std::vector<CachedFile> shrink_cache(uint64_t bytes, int64_t spared_seconds);

/// The bytes of `--cache_limit`. Throws `Error` G-CONF-3 when it is no size.
uint64_t cache_limit_bytes(const std::string& text);
/// A callback that keeps the cache below the limit once a run's data is open.
std::shared_ptr<TrainerCallback> cache_limiter(const std::string& limit);

}  // namespace gradus::cli
