#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradus::hooks {

/// A value as a YAML document in block style; text that YAML could read as something else is
/// quoted.
std::string yaml_text(const nlohmann::json& value);

}  // namespace gradus::hooks
