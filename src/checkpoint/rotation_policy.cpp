#include <gradus/checkpoint/rotation_policy.h>

#include <algorithm>

namespace gradus {

std::vector<CheckpointDir> RotationPolicy::to_delete(
    std::span<const CheckpointDir> existing, const std::optional<std::filesystem::path>& best,
    std::optional<int64_t> written) const {
  if (!limit_ || *limit_ <= 0 || existing.size() <= size_t(*limit_)) return {};
  std::vector<CheckpointDir> by_age(existing.begin(), existing.end());
  if (written)
    std::stable_partition(by_age.begin(), by_age.end(),
                          [&](const CheckpointDir& dir) { return dir.step > *written; });
  const auto best_name = best ? best->filename() : std::filesystem::path();
  const auto is_protected = [&](const CheckpointDir& dir) {
    return dir == by_age.back() || dir.path.filename() == best_name;
  };
  const auto kept = std::max<size_t>(
      size_t(*limit_), size_t(std::count_if(by_age.begin(), by_age.end(), is_protected)));
  std::vector<CheckpointDir> doomed;
  for (const auto& dir : by_age) {
    if (by_age.size() - doomed.size() <= kept) break;
    if (!is_protected(dir)) doomed.push_back(dir);
  }
  return doomed;
}

}  // namespace gradus
