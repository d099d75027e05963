#pragma once

#include <filesystem>
#include <vector>

namespace gradus {

/// What to do about a folder that does not exist.
enum class Missing { is_error, is_empty };

/// The paths of what is in `folder`, sorted. Throws `Error` G-IO-1 when it cannot be listed: to
/// take it for empty could cost what is in it.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder,
                                               Missing missing = Missing::is_error);

}  // namespace gradus
