#include <gradus/checkpoint/rotation_policy.h>

#include <algorithm>

namespace gradus {

std::vector<CheckpointDir> RotationPolicy::to_delete(std::span<const CheckpointDir> existing, const std::optional<std::filesystem::path>& best) const {
  if (!limit_ || *limit_ <= 0 || existing.size() <= size_t(*limit_)) return {};
  const auto best_name = best ? best->filename() : std::filesystem::path();
  const auto is_protected = [&](const CheckpointDir& dir) { return dir == existing.back() || dir.path.filename() == best_name; };
  const auto kept = std::max<size_t>(size_t(*limit_), size_t(std::count_if(existing.begin(), existing.end(), is_protected)));
  std::vector<CheckpointDir> doomed;
  for (const auto& dir : existing) {
    if (existing.size() - doomed.size() <= kept) break;
    if (!is_protected(dir)) doomed.push_back(dir);
  }
  return doomed;
}

}  // namespace gradus
