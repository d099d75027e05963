#pragma once

#include <cstdint>

namespace gradus {

/// By how much the user has raised the limits of what files may ask for: GRADUS_LIMIT_FACTOR of the
/// environment, 1 without it or when it is not a whole number of at least 1.
uint64_t limit_factor();

}  // namespace gradus
