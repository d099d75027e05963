#pragma once

#include <string_view>

namespace gradus {

/// Writes all of `content`. Waits for a pipe that its reader has made not to wait. Returns whether
/// that worked; `errno` says why not.
bool write_all(int fd, std::string_view content);

}  // namespace gradus
