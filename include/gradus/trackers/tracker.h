#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradus {

/// Where a run's numbers go: a file, a dashboard.
///
/// `begin` once, then `log` any number of times, then `finish`; `log` without `begin` is fine.
/// `finish` may be called twice and is implied by destruction. A tracker that cannot write warns
/// once and keeps quiet: a full disk costs the curve, not the run. Only rank 0 calls it.
/// Thread-safety: none.
class Tracker {
 public:
  virtual ~Tracker() = default;

  /// `args`: all training arguments; `model_config`: the model's config.json, null when it has
  /// none.
  virtual void begin(const nlohmann::json& args, const nlohmann::json& model_config);
  /// One log entry. `values` have the Trainer's keys ("loss", "eval_loss"); `step` is the global
  /// step.
  virtual void log(const std::map<std::string, double>& values, int64_t step) = 0;
  virtual void finish() {}
};

/// Makes the trackers `report_to` names: "tensorboard", "jsonl" (ours: log.jsonl in `output_dir`),
/// "all" (tensorboard, as a Python with only that package), "none". Throws `Error` G-TRACK-1 for a
/// tracker of the reference that is not there yet, or an unknown name.
std::vector<std::shared_ptr<Tracker>> make_trackers(const std::vector<std::string>& report_to,
                                                    const std::filesystem::path& output_dir);

/// "eval_x" as "eval/x", "test_x" as "test/x", all else as "train/x": HF's names on dashboards.
std::string dashboard_key(const std::string& key);

}  // namespace gradus
