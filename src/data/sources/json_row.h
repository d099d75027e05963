#pragma once

#include <gradus/data/example.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::sources {

/// Why a text is not a row, and at which byte of it.
struct NotARow : std::runtime_error {
  NotARow(const std::string& reason, size_t at) : std::runtime_error(reason), position(at) {}
  size_t position;
};

/// Parses a JSON object as a row, its keys in order; a JSON string as the row {"text": …}.
/// `wanted` leaves out other keys (empty: none). Lists of numbers and strings are made without a
/// JSON tree. Bare NaN and Infinity are taken, as Python does. Throws NotARow.
Example parse_json_row(std::string_view text, const std::vector<std::string>& wanted);

}  // namespace gradus::sources
