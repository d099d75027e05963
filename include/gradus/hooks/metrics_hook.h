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

struct MetricsOptions {
  std::vector<std::shared_ptr<Metric>> metrics = {};
  bool verbose = true;  ///< the line of an epoch has all metrics; else only losses
  std::optional<std::string> tracker_type =
      {};                      ///< "file" (JSON lines in `log_file`), "tensorboard", or none
  nlohmann::json config = {};  ///< given to the tracker
  int64_t freq = 1;            ///< log every so many optimizer steps
  std::filesystem::path log_file = "metrics.jsonl";
  std::optional<std::string> name = {};  ///< of the run, for the tracker
  std::optional<std::string> project = {};
  std::shared_ptr<Tracker> tracker = {};  ///< your own, in place of `tracker_type`
};

/// Runs metrics at their points, averages them over the epoch, logs a line per epoch and feeds a
/// tracker. One of them is enough for a trainer.
class MetricsHook : public MainProcessHook {
 public:
  /// Throws `Error` G-HOOK-1 for a null metric or a `freq` below 1.
  explicit MetricsHook(MetricsOptions options);

  void before_fit(Trainer& trainer) override;
  void before_epoch(Trainer& trainer) override;
  void after_pred(Trainer& trainer) override;
  void after_loss(Trainer& trainer) override;
  void after_backward(Trainer& trainer) override;
  void after_step(Trainer& trainer) override;
  void after_epoch(Trainer& trainer) override;
  void after_fit(Trainer& trainer) override;

  /// The averages of the last finished epoch: "train_loss", "valid_accuracy", "lr".
  const std::map<std::string, double>& epoch_data() const { return epoch_data_; }
  /// What was collected since the last optimizer step.
  std::map<std::string, double> step_data() const;

  /// Draws curves of `log_file` to the log sink and returns them; `metrics` without prefixes, all
  /// when empty.
  std::string plot(const std::vector<std::string>& metrics = {"loss"}) const;

  /// Sums of the epoch under way, for a checkpoint; `load_state` puts them back in the next
  /// `before_epoch`.
  StateTree save_state() const;
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
