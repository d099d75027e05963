#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradus {

/// How the values of a tensor are distributed.
struct Histogram {
  double min = 0;          ///< The least value.
  double max = 0;          ///< The greatest value.
  double sum = 0;          ///< Of all values.
  double sum_squares = 0;  ///< Of their squares.
  /// Upper limits of the buckets, ascending. The first bucket is empty and ends before the least.
  std::vector<double> limits = {};
  std::vector<double> counts = {};  ///< How many values each bucket has.
};

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
  /// How many parameters the model has; called after `begin`.
  virtual void model_parameters(int64_t) {}
  /// Training begins after `step`, which is 0 unless a run is resumed. What an earlier process
  /// wrote for later steps is superseded. An evaluation without training does not call this.
  virtual void training_begins(int64_t step);
  /// One log entry. `values` have the Trainer's keys ("loss", "eval_loss"); `step` is the global
  /// step.
  virtual void log(const std::map<std::string, double>& values, int64_t step) = 0;
  /// The metrics of a prediction ("test_loss"). Those trackers record them that do so in
  /// transformers: wandb and trackio.
  virtual void log_prediction(const std::map<std::string, double>&, int64_t) {}
  /// Whether `log_histogram` does anything; nobody computes one for nothing.
  virtual bool takes_histograms() const { return false; }
  /// How a weight ("weights/NAME") or a gradient ("gradients/NAME") is distributed.
  virtual void log_histogram(const std::string& /*name*/, const Histogram&, int64_t /*step*/) {}
  /// The run is over: write what is left and close.
  virtual void finish() {}
};

/// Makes a tracker for a run that writes to `output_dir`. Nothing is opened before `begin` or
/// `log`.
using TrackerMaker =
    std::function<std::shared_ptr<Tracker>(const std::filesystem::path& output_dir)>;

/// Adds a tracker. From then on `report_to`, its error messages, `gradus options` and
/// `make_tracker` know it, and "all" includes it.
///
///     gradus::register_tracker("lines", [](const std::filesystem::path& output_dir) {
///       return std::make_shared<Lines>(output_dir);
///     });
///
/// Call it before the first Trainer is made, from main() or while static objects are set up.
/// Thread-safe. Throws `Error` G-REG-1 for a name that is taken ("all" and "none" are), G-REG-2 for
/// an empty name or no `make`. A name of transformers that gradus does not have, "comet_ml" say, is
/// free.
void register_tracker(const std::string& name, TrackerMaker make);

/// The names of all trackers: "jsonl", "tensorboard", "csv", "mlflow", "openmetrics", "trackio",
/// "wandb", then those registered.
std::vector<std::string> tracker_names();
/// Names of transformers that are not there yet.
std::vector<std::string> missing_tracker_names();
/// What `report_to` accepts: "all", "none" and `tracker_names()`.
std::vector<std::string> tracker_choices();

/// The names that `report_to` stands for: "all" is every tracker that is usable here, "none" is no
/// tracker, both only alone. wandb is not usable where WANDB_DISABLED or WANDB_MODE=disabled is
/// set, mlflow where DISABLE_MLFLOW_INTEGRATION is, or its server could not be reached without
/// libcurl. Throws `Error` G-TRACK-1 for a tracker of transformers that is not there yet and for an
/// unknown name, with those known and the nearest.
std::vector<std::string> resolve_tracker_names(const std::vector<std::string>& report_to);

/// Makes the tracker of this name. Throws G-TRACK-1 as above.
std::shared_ptr<Tracker> make_tracker(const std::string& name,
                                      const std::filesystem::path& output_dir);
/// Makes all trackers that `report_to` names.
std::vector<std::shared_ptr<Tracker>> make_trackers(const std::vector<std::string>& report_to,
                                                    const std::filesystem::path& output_dir);

/// A log's key as dashboards show it in transformers: "eval_x" as "eval/x", "test_x" as "test/x",
/// all else as "train/x".
std::string dashboard_key(const std::string& key);

}  // namespace gradus
