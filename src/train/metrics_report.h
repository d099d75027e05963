#pragma once

#include <gradus/core/metrics.h>

#include <filesystem>
#include <string>

namespace gradus {

/// Prints a table of the metrics of a split ("train").
void show_metrics(const std::string& split, const Metrics& metrics);

/// Writes `<split>_results.json` and, if `combined`, adds the metrics to `all_results.json`.
void write_metrics(const std::filesystem::path& folder, const std::string& split,
                   const Metrics& metrics, bool combined = true);

}  // namespace gradus
