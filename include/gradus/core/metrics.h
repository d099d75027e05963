#pragma once

#include <map>
#include <string>

namespace gradus {

/// What an evaluation or a run found: numbers by name, in alphabetical order.
using Metrics = std::map<std::string, double>;

/// The numbers of one log entry, for example `loss` and `learning_rate`.
using Logs = std::map<std::string, double>;

}  // namespace gradus
