#pragma once

#include <string>
#include <string_view>

namespace gradus {

/// How many columns UTF-8 text takes on a terminal: two for most East Asian characters, none for
/// combining ones.
size_t display_width(std::string_view text);

/// The longest beginning of `text` that fits into `columns`.
std::string_view cut_to_width(std::string_view text, size_t columns);

}  // namespace gradus
