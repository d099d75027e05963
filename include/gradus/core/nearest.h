#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// The candidates closest to `name` by edit distance, nearest first, at most `limit`;
/// empty when nothing is close enough to be a likely slip of the keyboard.
std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, size_t limit = 3);

/// "a", "a or b", "a, b or c": for error texts.
std::string join_or(std::span<const std::string> names);

/// "Did you mean a or b?", or "" when nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace gradus
