#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// The candidates closest to `name` by edit distance, nearest first, at most `limit` of them.
/// A candidate that contains `name`, or that `name` begins with, counts as near, too, and capital
/// letters in `name` do not count. The result is empty when no candidate
/// looks like a typing error.
std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, size_t limit = 3);

/// Joins names for an error message: "a", "a or b", "a, b or c". No names give an empty string.
std::string join_or(std::span<const std::string> names);

/// "Did you mean a or b?", or an empty string when no candidate is near. For the advice of an
/// `Error` about an unknown name.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace gradus
