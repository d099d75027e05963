#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::text {

/// A regular expression, as the `regex` crate of Rust spells them, with look-around and back
/// references: nearly Python's. Memory, time and depth of a search have limits, whatever the text.
///
/// `std::regex` is not used: it recurses for every character, so a long text ends the process.
///
/// Thread-safety: any thread, at once.
class RegularExpression {
 public:
  enum class Match { part, whole };

  /// Throws G-TEXT-13 with the reason when `pattern` is not valid. With `Match::whole` the
  /// expression has to match all of a text.
  explicit RegularExpression(const std::string& pattern, Match match = Match::part);

  /// Whether the expression matches. Throws G-TEXT-13 when a limit was reached.
  bool matches(std::string_view text) const;
  /// The match and its first `groups` groups, or nothing; a group without a match is empty.
  std::optional<std::vector<std::string>> find(std::string_view text, size_t groups) const;

 private:
  std::string pattern_;
  std::shared_ptr<const void> handle_;
};

}  // namespace gradus::text
