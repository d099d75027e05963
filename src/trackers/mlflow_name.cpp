#include "trackers/mlflow_name.h"

#include <algorithm>

#include "trackers/tracked_run.h"

namespace gradus {
namespace {

constexpr size_t kLongestName = 250;  // MLflow's limit
constexpr std::u32string_view kMarks = U"_-. :/";

bool is_ascii_letter_or_digit(char32_t character) {
  return character < 0x80 && tracked::is_letter_or_digit(character);
}

/// Whether a folder of this name would be another one, or would lie elsewhere.
bool is_ambiguous_path(const std::u32string& name) {
  if (name.starts_with(U"..")) return true;
  for (size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find(U'/', at), name.size());
    const auto part = name.substr(at, end - at);
    if (part.empty() || part == U"." || part == U"..") return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string mlflow_metric_name(const std::string& key) {
  std::string name;
  for (const char32_t character : tracked::characters(key)) {
    const bool fits =
        is_ascii_letter_or_digit(character) || kMarks.find(character) != std::u32string_view::npos;
    name += fits ? char(character) : '_';
  }
  return name;
}

std::string mlflow_objection(const std::string& name) {
  const auto characters = tracked::characters(name);
  if (characters.size() > kLongestName) return "MLflow takes names of 250 characters at most";
  const bool is_known = std::all_of(characters.begin(), characters.end(), [](char32_t each) {
    return tracked::is_letter_or_digit(each) || kMarks.find(each) != std::u32string_view::npos;
  });
  if (!is_known) return "MLflow takes names of letters, digits and \"_-. :/\" only";
  return is_ambiguous_path(characters) ? "MLflow takes no name that is another path" : "";
}

}  // namespace gradus
