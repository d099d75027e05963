#pragma once

#include <map>
#include <string>

namespace gradus {

/// The result of an evaluation or a run: numbers by name, for example `eval_loss`, in alphabetical
/// order.
using Metrics = std::map<std::string, double>;

/// The numbers of one log entry by name, for example `loss` and `learning_rate`. The step is not
/// among them.
using Logs = std::map<std::string, double>;

}  // namespace gradus
