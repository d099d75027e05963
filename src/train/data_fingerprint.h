#pragma once

#include <gradus/data/dataset.h>

#include <nlohmann/json.hpp>

namespace gradus {

/// What tells one data set from another at little cost: rows, columns and a checksum over up to 32
/// rows at even distances, the first and the last among them. A part that cannot be had is null:
/// the rows of a stream without a length; the checksum of a stream, and of rows that come out
/// different each time (random augmentation). Draws no random numbers from the run. Null without
/// data.
nlohmann::json data_fingerprint(const DatasetRef& data);

/// How `now` differs from `saved`, for a message: "128 rows, before 64"; empty when they agree in
/// all that both know.
std::string data_difference(const nlohmann::json& now, const nlohmann::json& saved);

}  // namespace gradus
