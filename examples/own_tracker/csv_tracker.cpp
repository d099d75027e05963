#include "csv_tracker.h"

#include <fstream>
#include <nlohmann/json.hpp>

// A resumed run goes on with its file; a new one begins it.
void CsvTracker::begin(const nlohmann::json&, const nlohmann::json&) {
  std::filesystem::create_directories(file_.parent_path());
  if (!std::filesystem::exists(file_)) std::ofstream(file_) << "step,loss\n";
}

void CsvTracker::log(const std::map<std::string, double>& values, int64_t step) {
  if (const auto loss = values.find("loss"); loss != values.end())
    std::ofstream(file_, std::ios::app) << step << ',' << loss->second << '\n';
}
