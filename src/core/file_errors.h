#pragma once

#include <gradus/core/error.h>

#include <filesystem>

namespace gradus {

/// G-IO-1: `file` cannot be read. `code` is an `errno` value.
Error cannot_read(const std::filesystem::path& file, int code);

/// What to say first when a write failed that replaces a file only once it is complete.
constexpr const char* kNothingChanged = "Nothing that was there before was changed. ";

/// G-IO-2: `file` cannot be written. `before` is what to say first about what is there now.
Error cannot_write(const std::filesystem::path& file, int code, const std::string& before = {});

}  // namespace gradus
