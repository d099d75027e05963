#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gradus {

/// Parses JSON as Python's `json` does: bare NaN, Infinity and -Infinity are numbers, a byte-order
/// mark is skipped. Throws `Error` G-JSON-1 with `where`, line and column.
nlohmann::json parse_json(std::string_view text, const std::string& where = "JSON text");

/// Reads and parses a file. Throws G-IO-1 when it cannot be read, G-JSON-1 when it is not JSON.
nlohmann::json read_json(const std::filesystem::path& file);

/// Writes JSON as Python's `json.dumps(value, indent=indent, sort_keys=True)` does: the same
/// spacing, number forms, escapes and NaN/Infinity. `indent < 0` is the one-line form with ", " and
/// ": ".
std::string dump_json(const nlohmann::json& value, int indent = -1);

/// The same for a document whose keys keep their order (`sort_keys=False`).
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1);

/// A double as Python's `repr` writes it: 0.1, 5e-05, 1e+16, 3.0, nan as NaN.
std::string json_number(double value);

}  // namespace gradus
