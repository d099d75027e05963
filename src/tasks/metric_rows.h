#pragma once

#include <cstddef>

namespace gradus::metrics {

/// Throws G-TASK-6 unless there is one prediction for each reference.
void check_rows(size_t references, size_t predictions);

}  // namespace gradus::metrics
