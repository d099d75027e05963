// cache list, cache clean: the data that runs have prepared.
#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/byte_size.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "cli.h"
#include "core/temporary_name.h"
#include "data_cache.h"
#include "reference.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

struct CacheOptions {
  std::optional<std::string> cache_limit = std::nullopt;
  std::optional<double> days = std::nullopt;
  bool json = false;
};
constexpr OptionRow<CacheOptions> kCacheRows[] = {
    {&CacheOptions::cache_limit, "cache_limit", Group::program, any_value(),
     "clean: remove only until the rest takes at most this, 20GB say.", Origin::gradus},
    {&CacheOptions::days, "days", Group::program, at_least(0),
     "clean: remove only what was not used for so many days.", Origin::gradus},
    {&CacheOptions::json, "json", Group::program, any_value(), "Print one JSON document to stdout.",
     Origin::gradus},
};

constexpr const char* kCacheUsage =
    "usage: gradus cache list|clean [--cache_limit SIZE] [--days N]";

class CacheLimiter : public TrainerCallback {
 public:
  explicit CacheLimiter(uint64_t bytes) : bytes_(bytes) {}
  std::string name() const override { return "CacheLimiter"; }
  void on_train_begin(const TrainingArguments&, TrainerState& state, TrainerControl&,
                      const CallbackContext&) override {
    if (!state.is_local_process_zero) return;
    constexpr int64_t kOfThisRun = 3600;
    for (const auto& file : shrink_cache(bytes_, kOfThisRun))
      log_info("Removed from the cache: " + file.path.string());
  }

 private:
  uint64_t bytes_;
};

std::string day_of(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm local{};
  ::localtime_r(&time, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return text;
}

uint64_t bytes_of(const std::vector<CachedFile>& files) {
  uint64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  return sum;
}

void print_files(const std::vector<CachedFile>& files, bool as_json, const char* what) {
  if (as_json) {
    auto rows = nlohmann::json::array();
    for (const auto& file : files)
      rows.push_back(
          {{"path", file.path.string()}, {"bytes", file.bytes}, {"last_used", file.last_used}});
    print_line(dump_json(
        nlohmann::json{
            {"folder", data_cache_folder().string()}, {"bytes", bytes_of(files)}, {what, rows}},
        2));
    return;
  }
  for (const auto& file : files)
    print_line(fmt::format("{:>10}  {}  {}", format_byte_size(double(file.bytes)),
                           day_of(file.last_used), file.path.filename().string()));
  print_line(fmt::format("{} {} files, {}, in {}", what, files.size(),
                         format_byte_size(double(bytes_of(files))), data_cache_folder().string()));
}

}  // namespace

fs::path data_cache_folder() {
  // As the library chooses it for map() with a cache key.
  const char* base = std::getenv("XDG_CACHE_HOME");
  if (base != nullptr && *base != '\0') return fs::path(base) / "gradus" / "datasets";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : ".") / ".cache" / "gradus" / "datasets";
}

std::vector<CachedFile> cached_files() {
  std::vector<CachedFile> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(data_cache_folder(), error)) {
    struct stat found{};
    if (!entry.is_regular_file(error) || ::stat(entry.path().c_str(), &found) != 0) continue;
    // What was touched of late may belong to a process of another machine.
    constexpr int64_t kMayBeAtWork = 600;
    const bool is_abandoned = is_abandoned_temporary(entry.path().filename().string()) &&
                              std::time(nullptr) - found.st_mtime > kMayBeAtWork;
    if (entry.path().extension() != ".arrow" && !is_abandoned) continue;
    files.push_back(
        {entry.path(), uint64_t(found.st_size), std::max<int64_t>(found.st_atime, found.st_mtime)});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::tie(a.last_used, a.path) < std::tie(b.last_used, b.path);
  });
  return files;
}

std::vector<CachedFile> shrink_cache(uint64_t bytes, int64_t spared_seconds) {
  const auto files = cached_files();
  auto left = bytes_of(files);
  const int64_t spared = std::time(nullptr) - spared_seconds;
  std::vector<CachedFile> removed;
  for (const auto& file : files) {
    if (left <= bytes) break;
    if (spared_seconds > 0 && file.last_used > spared) continue;
    std::error_code error;
    if (!fs::remove(file.path, error)) continue;
    left -= file.bytes;
    removed.push_back(file);
  }
  return removed;
}

uint64_t cache_limit_bytes(const std::string& text) {
  const auto bytes = text == "0" ? std::optional<uint64_t>(0) : parse_byte_size(text);
  if (!bytes)
    throw Error("G-CONF-3", ErrorKind::usage, "--cache_limit is no size: '" + text + "'",
                "Write 20GB or 500MiB.");
  return *bytes;
}

std::shared_ptr<TrainerCallback> cache_limiter(const std::string& limit) {
  return std::make_shared<CacheLimiter>(cache_limit_bytes(limit));
}

std::vector<Flag> cache_flags() { return flags_of(kCacheRows); }

int cache(Words words) {
  CacheOptions options;
  OptionSet set;
  set.add(options, std::span<const OptionRow<CacheOptions>>(kCacheRows));
  const std::string action = words.empty() ? "" : words[0];
  if (action == "--help" || action == "-h") {
    print_line(std::string(kCacheUsage) + "\n\n" + set.help());
    return 0;
  }
  if (action != "list" && action != "clean")
    throw Error("G-CLI-4", ErrorKind::usage,
                action.empty() ? "gradus cache needs list or clean"
                               : "gradus cache knows list and clean, received '" + action + "'",
                kCacheUsage);
  if (set.parse(words.subspan(1)).help) {
    print_line(std::string(kCacheUsage) + "\n\n" + set.help());
    return 0;
  }
  set.check();
  if (action == "list") {
    if (options.cache_limit || options.days)
      throw Error("G-CLI-4", ErrorKind::usage, "--cache_limit and --days are for cache clean",
                  kCacheUsage);
    print_files(cached_files(), options.json, "files");
    return 0;
  }
  constexpr double kForever = 1e15;  // seconds; more than a time can hold must not become less
  const auto spared = int64_t(std::min(options.days.value_or(0) * 86400, kForever));
  const auto limit = options.cache_limit ? cache_limit_bytes(*options.cache_limit) : 0;
  print_files(shrink_cache(limit, spared), options.json, "removed");
  return 0;
}

}  // namespace gradus::cli
