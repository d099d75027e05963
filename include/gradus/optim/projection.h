#pragma once

#include <cstdint>
#include <string>

namespace gradus {

/// How GaLore and APOLLO project the gradient of a matrix to a low rank.
struct ProjectionOptions {
  int64_t rank = 128;             ///< rows or columns that are left
  int64_t update_proj_gap = 200;  ///< steps until the projection is chosen anew
  double scale = 0.25;            ///< factor of the update
  /// The side that becomes short: "std" (the shorter one), "reverse_std", "left", "right" or
  /// "full".
  std::string proj_type = "std";
};

}  // namespace gradus
