#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradus::config {

/// A value as Python's `repr` shows it: None, True, 5e-05, ['a', 'b'], {'k': 1}.
std::string python_repr(const nlohmann::json& value);

/// The same as `str`: a string without quotes.
std::string python_str(const nlohmann::json& value);

}  // namespace gradus::config
