#pragma once

#include <gradus/core/json.h>
#include <gradus/core/state_tree.h>
#include <gradus/hooks/metric.h>
#include <gradus/trackers/tracker.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus::hooks {

/// Settings of a `MetricsHook`.
struct MetricsOptions {
  std::vector<std::shared_ptr<Metric>> metrics = {};  ///< what to collect
  bool verbose = true;  ///< whether the line of an epoch has all metrics or only losses
  /// "file" (JSON lines in `log_file`) or "tensorboard"; unset for none.
  std::optional<std::string> tracker_type = {};
  nlohmann::json config = {};  ///< the run's configuration, given to the tracker
  int64_t freq = 1;            ///< optimizer steps between entries in the tracker
  std::filesystem::path log_file = "metrics.jsonl";  ///< for the tracker "file"
  std::optional<std::string> name = {};              ///< the run's name, for the tracker
  std::optional<std::string> project = {};           ///< the project's name, for the tracker
  std::shared_ptr<Tracker> tracker = {};             ///< your own, in place of `tracker_type`
};

/// Runs metrics at their points, averages them over the epoch, logs one line per epoch and feeds a
/// tracker. A trainer needs one of them at most.
class MetricsHook : public MainProcessHook {
 public:
  /// Throws `Error` G-HOOK-1 for a null metric or a `freq` below 1.
  explicit MetricsHook(MetricsOptions options);

  void before_fit(Trainer& trainer) override;      ///< opens the tracker
  void before_epoch(Trainer& trainer) override;    ///< starts new averages
  void after_pred(Trainer& trainer) override;      ///< runs the metrics of this point
  void after_loss(Trainer& trainer) override;      ///< runs the metrics of this point
  void after_backward(Trainer& trainer) override;  ///< runs the metrics of this point
  void after_step(Trainer& trainer) override;      ///< also feeds the tracker
  void after_epoch(Trainer& trainer) override;     ///< logs the averages
  void after_fit(Trainer& trainer) override;       ///< closes the tracker

  /// The averages of the last finished epoch by name, for example "train_loss",
  /// "valid_accuracy" and "lr".
  const std::map<std::string, double>& epoch_data() const { return epoch_data_; }
  /// What was collected since the last optimizer step. Reads the device.
  std::map<std::string, double> step_data() const;

  /// Draws the curves of `log_file` as text, writes them to the log sink and returns them.
  /// `metrics` are names without "train_" and "valid_"; an empty list draws all.
  std::string plot(const std::vector<std::string>& metrics = {"loss"}) const;

  /// The sums of the epoch under way, for a checkpoint.
  StateTree save_state() const;
  /// Restores these sums; the next `before_epoch` starts with them. `in_validation`: the checkpoint
  /// was written in the validation pass.
  void load_state(const StateTree& state, bool in_validation);

 private:
  struct Mean {
    double sum = 0;
    int64_t count = 0;
    std::vector<torch::Tensor> pending;  // values still on the device
    void settle();
  };

  void collect(Trainer& trainer, Point phase);
  void open_tracker(const Trainer& trainer);

  MetricsOptions options_;
  std::shared_ptr<Tracker> tracker_;
  std::map<std::string, MetricValue> step_data_;
  std::map<std::string, double> epoch_data_;
  std::map<std::string, Mean> means_;
  std::optional<std::map<std::string, Mean>> restored_;
};

/// A `MetricsHook` of these metrics: `metrics(Loss(), Accuracy())`.
template <class... M>
std::shared_ptr<MetricsHook> metrics(M... each) {
  MetricsOptions options;
  (options.metrics.push_back(std::make_shared<M>(std::move(each))), ...);
  return std::make_shared<MetricsHook>(std::move(options));
}

}  // namespace gradus::hooks
