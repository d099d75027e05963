#include <gradus/core/nearest.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace gradus {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

std::string lower_case(std::string_view text) {
  std::string small(text);
  for (auto& c : small) c = char(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, size_t limit) {
  std::vector<std::pair<size_t, const std::string*>> near;
  const auto in_small = lower_case(name);
  const size_t reach = std::max<size_t>(2, name.size() / 3);
  for (const auto& candidate : candidates) {
    const bool part = (name.size() >= 4 && candidate.find(name) != std::string::npos) ||
                      (candidate.size() >= 4 && in_small.starts_with(candidate));
    const size_t distance =
        std::min(edit_distance(name, candidate), edit_distance(in_small, candidate));
    if (distance <= reach)
      near.emplace_back(distance, &candidate);
    else if (part)
      near.emplace_back(reach + 1, &candidate);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : near) {
    if (names.size() == limit) break;
    names.push_back(*candidate);
  }
  return names;
}

std::string join_or(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto near = nearest_names(name, candidates);
  return near.empty() ? "" : "Did you mean " + join_or(near) + "?";
}

}  // namespace gradus
