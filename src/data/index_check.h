#pragma once

#include <cstdint>

namespace gradus::data {

/// Throws G-DATA-4 when `index` is not in [0, rows).
void throw_index(int64_t index, int64_t rows);

inline void check_index(int64_t index, int64_t rows) {
  if (index < 0 || index >= rows) throw_index(index, rows);
}

}  // namespace gradus::data
