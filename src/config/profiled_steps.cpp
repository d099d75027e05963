#include "config/profiled_steps.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

#include <charconv>
#include <string_view>

namespace gradus::config {
namespace {

std::optional<int64_t> step_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

}  // namespace

std::optional<ProfiledSteps> profiled_steps(const std::optional<std::string>& text) {
  if (!text || text->empty()) return std::nullopt;
  const std::string_view whole = *text;
  const auto colon = whole.find(':');
  const auto first = step_number(whole.substr(0, colon));
  const auto last = colon == std::string_view::npos ? first : step_number(whole.substr(colon + 1));
  if (first && last && *first <= *last) return ProfiledSteps{*first, *last};
  throw Error("G-CONF-3", ErrorKind::usage,
              fmt::format("profile_steps: must be FIRST:LAST, received \"{}\"", *text),
              "Give the numbers of two steps, such as 11:13; the first step of a run is 1.");
}

}  // namespace gradus::config
