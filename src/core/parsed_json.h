#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gradus {

// nlohmann's parser, compiled once. Its templates take seconds in every file that names them, so
// that the library parses by these functions. Texts of users are read by `parse_json`
// (gradus/core/json.h), which accepts what Python's does and says where a text is wrong.

/// What `nlohmann::json::parse(text)` returns; throws `nlohmann::json::parse_error` as it does.
nlohmann::json strict_json(std::string_view text);

/// The same, or a value with `is_discarded()` where the text is not JSON.
nlohmann::json json_or_discarded(std::string_view text);

/// The two with the members of objects in their order, however many they are.
nlohmann::ordered_json strict_ordered_json(std::string_view text);
nlohmann::ordered_json ordered_json_or_discarded(std::string_view text);

/// As `parse_json`, with the members of objects in their order.
nlohmann::ordered_json parse_ordered_json(std::string_view text,
                                          const std::string& where = "JSON text");

}  // namespace gradus
