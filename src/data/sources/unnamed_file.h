#pragma once

#include <filesystem>

namespace gradus::sources {

/// A file without a name in `folder` (empty: the system's place), gone when closed. Gives its
/// descriptor. Throws G-IO-2.
int open_unnamed_file(const std::filesystem::path& folder);

}  // namespace gradus::sources
