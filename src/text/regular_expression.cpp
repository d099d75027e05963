#include "text/regular_expression.h"

#include <gradus/core/error.h>

#include <fmt/format.h>

#include <cstdint>

#ifdef GRADUS_WITH_TOKENIZERS
#include "text/tokenizers_c.h"

namespace gradus::text {

RegularExpression::RegularExpression(const std::string& pattern, Match match) : pattern_(pattern) {
  gtc_regex* made = nullptr;
  if (const auto reason = error_of(gtc_regex_new(span_of(pattern), match == Match::whole, &made)))
    throw Error("G-TEXT-13", ErrorKind::usage,
                fmt::format("'{}' is not a regular expression: {}", pattern, *reason));
  handle_ = {made, [](const void* regex) {
               gtc_regex_free(const_cast<gtc_regex*>(static_cast<const gtc_regex*>(regex)));
             }};
}

std::optional<std::vector<std::string>> RegularExpression::find(std::string_view text,
                                                                size_t groups) const {
  std::vector<size_t> places(2 * (groups + 1));
  int32_t is_found = 0;
  const auto* regex = static_cast<const gtc_regex*>(handle_.get());
  if (const auto reason =
          error_of(gtc_regex_find(regex, span_of(text), groups + 1, places.data(), &is_found)))
    throw Error("G-TEXT-13", ErrorKind::usage,
                fmt::format("the search for '{}' was given up: {}", pattern_, *reason),
                "Write the expression without nested repetitions.");
  if (is_found == 0) return std::nullopt;
  std::vector<std::string> parts;
  for (size_t i = 0; i <= groups; ++i)
    parts.emplace_back(places[2 * i] == SIZE_MAX
                           ? std::string_view()
                           : text.substr(places[2 * i], places[2 * i + 1] - places[2 * i]));
  return parts;
}

bool RegularExpression::matches(std::string_view text) const { return find(text, 0).has_value(); }

}  // namespace gradus::text

#else

namespace gradus::text {

RegularExpression::RegularExpression(const std::string&, Match) {
  throw Error("G-TEXT-1", ErrorKind::usage, "this build of gradus has no regular expressions",
              "Install Rust (cargo 1.85 or newer) with rustup, then configure and build again.");
}
std::optional<std::vector<std::string>> RegularExpression::find(std::string_view, size_t) const {
  return std::nullopt;
}
bool RegularExpression::matches(std::string_view) const { return false; }

}  // namespace gradus::text

#endif
