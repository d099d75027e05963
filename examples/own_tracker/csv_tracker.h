#pragma once

#include <gradus/trackers/tracker.h>

/// Writes the losses of a run to losses.csv in its output folder.
class CsvTracker : public gradus::Tracker {
 public:
  explicit CsvTracker(std::filesystem::path file) : file_(std::move(file)) {}

  void begin(const nlohmann::json& args, const nlohmann::json& model_config) override;
  void log(const std::map<std::string, double>& values, int64_t step) override;

 private:
  std::filesystem::path file_;
};
