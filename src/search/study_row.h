#pragma once

#include <gradus/core/error.h>

#include <cmath>
#include <string>

#include "trackers/sqlite_database.h"

namespace gradus::search {

/// A field of a row of a study. A file may hold anything: throws G-SEARCH-2 for another kind.
template <class T>
const T& field_of(const SqlValue& value) {
  if (const auto* found = std::get_if<T>(&value)) return *found;
  throw Error("G-SEARCH-2", ErrorKind::data, "the study holds a value of another kind",
              "The file is damaged, or was changed by another program.");
}

/// A number; NaN for everything else.
inline double number_of_field(const SqlValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return double(*whole);
  const auto* real = std::get_if<double>(&value);
  return real != nullptr ? *real : std::nan("");
}

/// A number, with the word beside it for those that SQL does not have.
inline double typed_number_of(const SqlValue& value, const SqlValue& kind) {
  const auto& word = field_of<std::string>(kind);
  if (word == "INF_POS") return HUGE_VAL;
  if (word == "INF_NEG") return -HUGE_VAL;
  return word == "NAN" ? std::nan("") : number_of_field(value);
}

}  // namespace gradus::search
