#pragma once

#include <string>
#include <string_view>

namespace gradus {

/// `text` as it may be shown on a terminal: what would control it is written out.
///
/// Texts of files end up in messages, and a terminal obeys some characters. Control characters of
/// ASCII and of Latin-1 (ESC, carriage return, CSI) and bytes that are not UTF-8 become `\x1b`.
/// Marks that reorder or hide what follows (U+202E and its like) become `\u202e`. Line breaks, tabs
/// and everything else stay as they are. `Error` and the log use it for every message.
std::string printable(std::string_view text);

}  // namespace gradus
