#pragma once

#include <cstddef>
#include <string_view>

namespace gradus::data {

/// Hashes names that come from a file. The seed differs from process to process, so that nobody can
/// choose names that all share one hash.
struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const;
};

}  // namespace gradus::data
