#pragma once

#include <gradus/data/table_dataset.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace gradus {

/// Options of `map_rows`.
struct MapOptions {
  /// Rows handed to the function at a time.
  int64_t batch_size = 1000;
  /// Batches never cross the borders of this many even runs of rows, as with transformers'
  /// `preprocessing_num_workers`, so that grouped remainders are the same. It says nothing about
  /// threads.
  int64_t runs = 1;
  /// Threads that call the function, which must bear that. 0: one per core, at most 8.
  int64_t threads = 0;
  /// With a key the result is kept as `<cache_dir>/<cache_key>.arrow` and taken from there the next
  /// time. The key must stand for everything the result depends on. The file has a checksum for
  /// each block of rows; one without checksums, of an earlier gradus, is computed again. Needs
  /// Arrow; without it the result stays in memory.
  std::string cache_key = {};
  /// Default: `gradus/datasets` in the user's cache folder.
  std::filesystem::path cache_dir = {};
  /// Compute again and replace what is in the cache.
  bool overwrite_cache = false;
  /// Before the progress bar; empty: no progress.
  std::string description = "map";
};

/// Makes new rows of a batch of rows; it may return more or fewer than it got.
using MapFunction = std::function<std::vector<Example>(std::vector<Example>)>;

/// Applies `function` to all rows now. It may give more or fewer rows than it got; their order is
/// kept. With a cache key the rows lie in a memory-mapped file (written under a temporary name,
/// then renamed), else in memory. An error of the function is thrown here, once running calls have
/// ended; nothing is left in the cache. For an `Error` the function is called again with single
/// rows, to name the first that it does not take.
///
/// A block of a cache file is compared with its checksum when the first row of it is read. A
/// damaged file is named in a warning and computed again; reading goes on with the new one. For
/// that the result keeps `dataset` and a copy of `function` until all blocks were compared. The
/// function must not refer to anything that ends earlier.
std::shared_ptr<Dataset> map_rows(std::shared_ptr<const Dataset> dataset, MapFunction function,
                                  const MapOptions& options = {});

/// The same for a data set that the result does not keep. A cache file is therefore read and
/// compared with its checksums as a whole before this returns.
std::shared_ptr<Dataset> map_rows(const Dataset& dataset, const MapFunction& function,
                                  const MapOptions& options = {});

}  // namespace gradus
