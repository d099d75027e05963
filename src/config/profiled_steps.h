#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradus::config {

/// The steps that `--profile_steps` names, both included; the first step of a run is 1.
struct ProfiledSteps {
  int64_t first = 1, last = 1;
};

/// Reads "11:13", or "11" for one step. Throws `Error` G-CONF-3 where the text is something else.
std::optional<ProfiledSteps> profiled_steps(const std::optional<std::string>& text);

}  // namespace gradus::config
