#pragma once

#include <gradus/data/load_dataset.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

namespace gradus {

/// Options of `data_show`.
struct DataShowOptions {
  /// How the file is read.
  LoadOptions load = {};
  /// First rows to show.
  int64_t rows = 3;
  /// Rows looked at for lengths and ranges, spread evenly; 0: all.
  int64_t sample = 10'000;
  /// Turns `input_ids` into text, when a tokenizer is at hand.
  std::function<std::string(std::span<const int64_t>)> decode = {};
};

/// What is in a data file:
/// `{"files": [{"path", "bytes"}], "rows", "skipped_rows", "columns": [{"name", "type",
/// "stored_as", "nulls", …}], "first_rows": […]}`. A column of text or lists has `"lengths":
/// {"min", "mean", "max", "histogram": [{"from", "to", "count"}]}`, one of numbers
/// `"min", "mean", "max"`, one of classes or few distinct values `"values": {value: count}`. Counts
/// are over `"sampled_rows"`.
nlohmann::ordered_json data_show(const DataFiles& files, const DataShowOptions& options = {});

/// The same for people, `width` characters wide.
std::string format_data_show(const nlohmann::ordered_json& report, int width = 100);

}  // namespace gradus
