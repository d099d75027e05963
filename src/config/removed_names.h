#pragma once

#include <optional>
#include <string_view>

namespace gradus::config {

/// What became of an option that transformers 4 had and transformers 5 has not.
struct RemovedName {
  std::string_view name;
  std::string_view successor;  ///< an option that there is now
  std::string_view advice;     ///< what to write instead
};

/// The row of an option of transformers 4 that was removed; `nullopt` for any other name.
std::optional<RemovedName> find_removed(std::string_view name);

}  // namespace gradus::config
