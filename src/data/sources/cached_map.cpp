#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/cached_map.h>
#include <gradus/data/load_dataset.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <limits>

#include "data/sources/arrow_table.h"
#include "data/sources/arrow_writer.h"
#include "data/sources/ordered_jobs.h"
#include "data/sources/progress_line.h"
#include "data/sources/source_files.h"

namespace gradus {
namespace fs = std::filesystem;
namespace sources {
namespace {

struct Slice {
  int64_t first, last;
};

// Batches of rows that do not cross the borders of `runs` even runs; the first runs have one row
// more where it does not come out even.
std::vector<Slice> slices(int64_t rows, const MapOptions& options) {
  std::vector<Slice> batches;
  const auto runs = std::clamp<int64_t>(options.runs, 1, std::max<int64_t>(rows, 1));
  const auto size =
      options.batch_size > 0 ? options.batch_size : std::numeric_limits<int64_t>::max();
  int64_t first = 0;
  for (int64_t run = 0; run < runs; ++run) {
    const auto end = first + rows / runs + (run < rows % runs ? 1 : 0);
    while (first < end) {
      const auto last = end - first > size ? first + size : end;
      batches.push_back({first, last});
      first = last;
    }
  }
  return batches;
}

// Calls `function` on all rows, in parallel, and `take` with what it gave, in order.
void map_all(const Dataset& dataset, const MapFunction& function, const MapOptions& options,
             const std::function<void(std::vector<Example>)>& take) {
  const auto batches = slices(dataset.size(), options);
  ProgressLine progress(options.description, "rows", dataset.size());
  size_t next = 0;
  run_in_order(thread_count(options.threads), [&]() -> std::optional<OrderedJob> {
    if (next == batches.size()) return std::nullopt;
    const auto slice = batches[next++];
    auto result = std::make_shared<std::vector<Example>>();
    return OrderedJob{[&dataset, &function, slice, result] {
                        std::vector<int64_t> indices;
                        for (auto i = slice.first; i < slice.last; ++i) indices.push_back(i);
                        *result = function(dataset.get_many(indices));
                      },
                      [&progress, &take, slice, result] {
                        take(std::move(*result));
                        progress.update(slice.last);
                      }};
  });
}

#ifdef GRADUS_WITH_ARROW
fs::path cache_folder(const MapOptions& options) {
  if (!options.cache_dir.empty()) return options.cache_dir;
  const char* base = std::getenv("XDG_CACHE_HOME");
  return (base != nullptr && *base != '\0' ? fs::path(base) : expand_user("~/.cache")) / "gradus" /
         "datasets";
}

// What processes left behind that were ended while they wrote. A file that was touched of late may
// belong to another machine.
void remove_abandoned(const fs::path& folder) {
  constexpr std::string_view kMark = ".arrow.tmp-";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    const auto mark = name.find(kMark);
    if (mark == std::string::npos ||
        fs::file_time_type::clock::now() - entry.last_write_time(ignored) <
            std::chrono::minutes(10))
      continue;
    const auto process = std::atoi(name.c_str() + mark + kMark.size());
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), ignored);
  }
}

// Null when there is no usable file.
std::shared_ptr<Dataset> open_cached(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return nullptr;
  try {
    return map_arrow_file(std::make_shared<MappedFile>(file), {});
  } catch (const Error& error) {
    log_warning("computing again what the cache should hold: " + error.message());
    return nullptr;
  }
}

std::shared_ptr<Dataset> map_through_cache(const Dataset& dataset, const MapFunction& function,
                                           const MapOptions& options) {
  if (options.cache_key.find_first_of("/\\") != std::string::npos ||
      options.cache_key.starts_with('.'))
    throw Error("G-SRC-18", ErrorKind::usage,
                fmt::format("the cache key \"{}\" cannot be a file name", options.cache_key),
                "Use letters, digits, '-' and '_', for example a hash.");
  const auto folder = cache_folder(options);
  const auto file = folder / (options.cache_key + ".arrow");
  if (!options.overwrite_cache)
    if (auto cached = open_cached(file)) return cached;
  make_directory(folder);
  remove_abandoned(folder);
  ArrowWriter writer(file);
  map_all(dataset, function, options, [&](std::vector<Example> rows) { writer.append(rows); });
  writer.close();
  return map_arrow_file(std::make_shared<MappedFile>(file), {});
}
#endif

}  // namespace
}  // namespace sources

std::shared_ptr<Dataset> map_rows(const Dataset& dataset, const MapFunction& function,
                                  const MapOptions& options) {
#ifdef GRADUS_WITH_ARROW
  if (!options.cache_key.empty()) return sources::map_through_cache(dataset, function, options);
#endif
  std::vector<Example> all;
  sources::map_all(dataset, function, options, [&](std::vector<Example> rows) {
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  });
  return from_examples(std::move(all));
}

}  // namespace gradus
