#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

/// A value of a metric at a step; the time is in milliseconds since 1970.
struct MlflowMetric {
  std::string key;
  double value;
  int64_t time;
  int64_t step;
};

/// What a new run is called.
struct MlflowRun {
  std::string experiment;  // empty: the one called "Default"
  std::string name;
  std::string user;
  int64_t start_time = 0;
  std::map<std::string, std::string> tags;
};

using MlflowParameters = std::vector<std::pair<std::string, std::string>>;

/// Where MLflow keeps runs. All functions throw `Error` when they fail, and may then be called
/// again. Thread-safety: none.
class MlflowStore {
 public:
  virtual ~MlflowStore() = default;
  /// Makes a run, and its experiment if there is none of that name; returns the run's id.
  virtual std::string create_run(const MlflowRun& run) = 0;
  /// Adds parameters and tags to a run. Parameters that are there stay as they are.
  virtual void describe_run(const std::string& run_id, const MlflowParameters& parameters,
                            const std::map<std::string, std::string>& tags) = 0;
  virtual void log_metrics(const std::string& run_id, std::span<const MlflowMetric> metrics) = 0;
  /// Notes that the run has finished.
  virtual void end_run(const std::string& run_id, int64_t end_time) = 0;
};

/// A folder: `mlruns`.
std::unique_ptr<MlflowStore> mlflow_folder(const std::filesystem::path& folder);
/// A SQLite file. Artifacts of new experiments belong into `artifacts`.
std::unique_ptr<MlflowStore> mlflow_database(const std::filesystem::path& file,
                                             const std::filesystem::path& artifacts);
/// A server: "http://127.0.0.1:5000".
std::unique_ptr<MlflowStore> mlflow_server(const std::string& uri);

}  // namespace gradus
