#pragma once

#include <string>
#include <string_view>

/// For pages that the program writes.
namespace gradus {

/// Bytes as text, for a `data:` address.
std::string base64(std::string_view bytes);

/// A text that may stand between tags and in attributes.
std::string escaped_html(std::string_view text);

}  // namespace gradus
