#pragma once

#include <nlohmann/json.hpp>

namespace gradus::search {

/// What tells this process from all others: machine, start of the machine, number, start.
nlohmann::json this_process();
/// Whether that process belonged to this machine and is no more. False when nobody can know.
bool is_gone(const nlohmann::json& process);

}  // namespace gradus::search
