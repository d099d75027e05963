#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gradus {

/// Parses JSON as Python's `json` module does: bare NaN, Infinity and -Infinity are numbers, and a
/// byte-order mark is skipped. Throws `Error` G-JSON-1 with `where`, line and column, also for a
/// document nested deeper than 1000 levels.
nlohmann::json parse_json(std::string_view text, const std::string& where = "JSON text");

/// Reads and parses a file. Throws `Error` G-IO-1 when it cannot be read and G-JSON-1 when it is
/// not JSON.
nlohmann::json read_json(const std::filesystem::path& file);

/// Writes JSON as Python's `json.dumps(value, indent=indent, sort_keys=True)` does: the same
/// spacing, numbers, escapes and NaN. A negative `indent` writes one line with ", " and ": ".
std::string dump_json(const nlohmann::json& value, int indent = -1);

/// Writes a document whose keys keep their order (`sort_keys=False`).
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1);

/// A number as Python's `json` writes it: 0.1, 5e-05, 1e+16, 3.0, NaN.
std::string json_number(double value);

}  // namespace gradus
