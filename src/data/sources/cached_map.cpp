#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/cached_map.h>
#include <gradus/data/load_dataset.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>

#include "core/temporary_name.h"
#include "data/required.h"
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

// Finds the first row that `function` does not take by itself, and says which one it is.
[[noreturn]] void blame_row(const Dataset& dataset, const MapFunction& function, const Slice& slice,
                            const Error& found) {
  const bool names_row = found.message().find(", row ") != std::string::npos;
  for (auto i = slice.first; !names_row && i < slice.last; ++i) {
    try {
      function(std::vector<Example>{dataset.get(i)});
    } catch (const Error& error) {
      throw Error(error.id(), error.kind(), fmt::format("{} (row {})", error.message(), i),
                  error.advice());
    }
  }
  throw;  // it is called where `found` is caught
}

std::vector<Example> mapped(const Dataset& dataset, const MapFunction& function,
                            const Slice& slice) {
  std::vector<int64_t> indices;
  for (auto i = slice.first; i < slice.last; ++i) indices.push_back(i);
  auto rows = dataset.get_many(indices);
  try {
    return function(std::move(rows));
  } catch (const Error& error) {
    blame_row(dataset, function, slice, error);
  }
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
    return OrderedJob{
        [&dataset, &function, slice, result] { *result = mapped(dataset, function, slice); },
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
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_abandoned_temporary(entry.path().filename().string()) &&
        fs::file_time_type::clock::now() - entry.last_write_time(ignored) >
            std::chrono::minutes(10))
      fs::remove(entry.path(), ignored);
}

fs::path cache_file(const MapOptions& options) {
  if (options.cache_key.find_first_of("/\\") != std::string::npos ||
      options.cache_key.starts_with('.'))
    throw Error("G-SRC-18", ErrorKind::usage,
                fmt::format("the cache key \"{}\" cannot be a file name", options.cache_key),
                "Use letters, digits, '-' and '_', for example a hash.");
  return cache_folder(options) / (options.cache_key + ".arrow");
}

void warn_of_damage(const Error& error) {
  log_warning("computing again what the cache should hold: " + error.message());
}

// Null when there is no usable file, or none is wanted.
std::shared_ptr<ArrowTable> open_cached(const MapOptions& options) {
  const auto file = cache_file(options);
  std::error_code ignored;
  if (options.overwrite_cache || !fs::exists(file, ignored)) return nullptr;
  try {
    return map_summed_file(std::make_shared<MappedFile>(file));
  } catch (const Error& error) {
    warn_of_damage(error);
    return nullptr;
  }
}

std::shared_ptr<ArrowTable> write_cache(const Dataset& dataset, const MapFunction& function,
                                        const MapOptions& options) {
  const auto file = cache_file(options);
  make_directory(file.parent_path());
  remove_abandoned(file.parent_path());
  ArrowWriter writer(file);
  map_all(dataset, function, options, [&](std::vector<Example> rows) { writer.append(rows); });
  writer.close();
  return map_summed_file(std::make_shared<MappedFile>(file));
}

// Rows of a cache file that was there. When one turns out to be damaged, all are computed again.
// What they are computed from is kept until all have been seen to be sound.
class CachedRows : public TableDataset, public MappedRows {
 public:
  CachedRows(std::shared_ptr<ArrowTable> table, std::shared_ptr<const Dataset> dataset,
             MapFunction function, MapOptions options)
      : dataset_(std::move(dataset)),
        function_(std::move(function)),
        options_(std::move(options)),
        first_(std::move(table)),
        table_(first_.get()) {}

  int64_t size() const override { return first_->size(); }
  const std::vector<ColumnInfo>& columns() const override { return first_->columns(); }
  Example get(int64_t index) const override {
    const auto* table = table_.load(std::memory_order_acquire);
    try {
      auto row = table->get(index);
      if (keeps_source_.load(std::memory_order_relaxed) && table->all_checked()) drop_source();
      return row;
    } catch (const Error& error) {
      if (error.id() != "G-SRC-8") throw;
      return repaired(table, error)->get(index);
    }
  }
  void release_pages(int64_t index) const override {
    table_.load(std::memory_order_acquire)->release_pages(index);
  }

 private:
  void drop_source() const {
    const std::lock_guard lock(repairing_);
    dataset_.reset();
    function_ = nullptr;
    keeps_source_ = false;
  }

  // Others may still read from the table before, so it is kept.
  const ArrowTable* repaired(const ArrowTable* broken, const Error& error) const {
    const std::lock_guard lock(repairing_);
    if (table_.load(std::memory_order_relaxed) != broken) return table_;
    if (dataset_ == nullptr) throw error;
    warn_of_damage(error);
    auto fresh = write_cache(*dataset_, function_, options_);
    if (fresh->size() != size())
      throw Error("G-SRC-8", ErrorKind::data,
                  fmt::format("{}, and computing the rows again gives {} rows, not {}",
                              error.message(), fresh->size(), size()),
                  "The data files have changed since the run began. Start it again.");
    repaired_.push_back(std::move(fresh));
    table_.store(repaired_.back().get(), std::memory_order_release);
    return table_;
  }

  mutable std::shared_ptr<const Dataset> dataset_;
  mutable MapFunction function_;
  MapOptions options_;
  mutable std::mutex repairing_;
  mutable std::atomic<bool> keeps_source_ = true;
  std::shared_ptr<ArrowTable> first_;
  mutable std::vector<std::shared_ptr<ArrowTable>> repaired_;
  mutable std::atomic<const ArrowTable*> table_;  // the last of them
};
#endif

}  // namespace
}  // namespace sources

std::shared_ptr<Dataset> map_rows(const Dataset& dataset, const MapFunction& function,
                                  const MapOptions& options) {
#ifdef GRADUS_WITH_ARROW
  if (!options.cache_key.empty()) {
    if (auto table = sources::open_cached(options)) {
      try {
        table->check_all();
        return table;
      } catch (const Error& error) {
        sources::warn_of_damage(error);
      }
    }
    return sources::write_cache(dataset, function, options);
  }
#endif
  std::vector<Example> all;
  sources::map_all(dataset, function, options, [&](std::vector<Example> rows) {
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  });
  return from_examples(std::move(all));
}

std::shared_ptr<Dataset> map_rows(std::shared_ptr<const Dataset> dataset, MapFunction function,
                                  const MapOptions& options) {
  dataset = data::required(std::move(dataset), "map_rows");
#ifdef GRADUS_WITH_ARROW
  if (!options.cache_key.empty())
    if (auto table = sources::open_cached(options))
      return std::make_shared<sources::CachedRows>(std::move(table), std::move(dataset),
                                                   std::move(function), options);
#endif
  auto fresh = options;
  fresh.overwrite_cache = true;  // there is none that could be used
  return map_rows(*dataset, function, fresh);
}

}  // namespace gradus
