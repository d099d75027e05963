#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/log.h>

#include <algorithm>
#include <charconv>

#include "core/list_folder.h"
#include "core/temporary_name.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "checkpoint-";

std::optional<int64_t> parse_count(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || value < 0)
    return std::nullopt;
  return value;
}

}  // namespace

fs::path checkpoint_path(const fs::path& run_dir, int64_t step) {
  return run_dir / (std::string(kPrefix) + std::to_string(step));
}

std::vector<CheckpointDir> list_checkpoints(const fs::path& run_dir) {
  std::vector<CheckpointDir> found;
  for (const auto& path : list_folder(run_dir, Missing::is_empty)) {
    const auto name = path.filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto step = parse_count(std::string_view(name).substr(kPrefix.size()));
    if (!step) continue;
    std::error_code unknown;
    if (fs::is_directory(path, unknown))
      found.push_back({path, *step});
    else if (fs::is_symlink(path, unknown) && !fs::exists(path, unknown))
      log_warning_once(path.string() + " is a link to " + fs::read_symlink(path, unknown).string() +
                       ", which does not exist; it is not counted as a checkpoint.");
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::optional<CheckpointDir> newest_checkpoint(const fs::path& run_dir) {
  const auto all = list_checkpoints(run_dir);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<CheckpointDir> newest_complete_checkpoint(const fs::path& run_dir) {
  auto all = list_checkpoints(run_dir);
  for (auto it = all.rbegin(); it != all.rend(); ++it)
    if (verify_checkpoint(it->path, Verify::full).complete()) return *it;
  return std::nullopt;
}

void remove_checkpoint(const CheckpointDir& dir) {
  std::error_code code;
  const auto doomed = dir.path.parent_path() / temporary_name(dir.path.filename().string());
  fs::rename(dir.path, doomed, code);
  fs::remove_all(code ? dir.path : doomed, code);
}

void remove_unfinished(const fs::path& run_dir) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (fs::directory_iterator entry(run_dir, ignored), end; entry != end; entry.increment(ignored))
    if (is_abandoned_temporary(entry->path().filename().string())) stale.push_back(entry->path());
  for (const auto& path : stale) fs::remove_all(path, ignored);
}

}  // namespace gradus
