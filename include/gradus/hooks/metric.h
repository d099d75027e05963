#pragma once

#include <gradus/hooks/hook.h>
#include <torch/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gradus::hooks {

/// A number, or a tensor of one element. A tensor is read later, so that a metric need not wait for
/// the device.
using MetricValue = std::variant<double, torch::Tensor>;
/// What a metric found for a batch, by name.
using MetricValues = std::vector<std::pair<std::string, MetricValue>>;

/// Collects numbers at one point of the run; `MetricsHook` averages and logs them.
///
/// To write your own, derive from it and override `operator()`.
class Metric {
 public:
  std::string name;  ///< names the metric in messages; the values have names of their own
  int64_t freq;      ///< optimizer steps between calls in training; validation calls every time
  Point phase;       ///< the point at which it is called
  bool use_prefix;   ///< whether the names of its values get "train_" or "valid_" in front

  /// Throws `Error` G-HOOK-1 when `freq` is below 1.
  explicit Metric(std::string name, int64_t freq = 1, Point phase = Point::after_step,
                  bool use_prefix = true);
  virtual ~Metric() = default;

  /// Whether to call it for the batch under way; by default every `freq` optimizer steps.
  virtual bool should_run(const Trainer& trainer) const;
  /// The values by name. Return none to leave this batch out of the average.
  virtual MetricValues operator()(Trainer& trainer) = 0;

 protected:
  /// An entry of the step's result. When it is missing, throws G-HOOK-7 with the names that the
  /// step returned.
  static torch::Tensor from_result(Trainer& trainer, const std::string& key);
};

/// Computes a tensor from what the trainer holds: batch, result, model.
using TensorFunction = std::function<torch::Tensor(Trainer&)>;

/// Settings of `Loss`.
struct LossOptions {
  int64_t freq = 1;               ///< see `Metric::freq`
  std::string loss_key = "loss";  ///< the entry of the step's result
  TensorFunction loss_fn = {};    ///< when set, called in place of reading that entry
};

/// The loss, under the name "loss", as it is after the step: gradient accumulation has already
/// divided it by the number of batches in a window.
class Loss : public Metric {
 public:
  /// Throws `Error` G-HOOK-1 when `freq` is below 1.
  explicit Loss(LossOptions options = {});
  MetricValues operator()(Trainer& trainer) override;

 private:
  LossOptions options_;
};

/// Settings of `Accuracy`.
struct AccuracyOptions {
  std::string name = "accuracy";       ///< the name of the value
  int64_t freq = 1;                    ///< see `Metric::freq`
  std::string pred_key = "preds";      ///< the entry of the step's result with the predictions
  std::string target_key = "targets";  ///< the entry with the right classes
  TensorFunction pred_fn = {};         ///< when set, gives the predicted classes
  TensorFunction target_fn = {};       ///< when set, gives the right classes
};

/// The share of right predictions.
///
/// Predictions with two or more dimensions are scores per class, and the largest wins.
/// One-dimensional integers are classes. Other one-dimensional predictions are probabilities of
/// class 1.
class Accuracy : public Metric {
 public:
  /// Throws `Error` G-HOOK-1 when `freq` is below 1.
  explicit Accuracy(AccuracyOptions options = {});
  /// With other names of the two entries.
  explicit Accuracy(std::string pred_key, std::string target_key = "targets");
  MetricValues operator()(Trainer& trainer) override;

 private:
  AccuracyOptions options_;
};

/// The learning rate of `LRSchedulerHook`, in training. Throws G-HOOK-6 when there is none.
class LRStats : public Metric {
 public:
  /// `name`: of the value.
  explicit LRStats(std::string name = "lr", int64_t freq = 1)
      : Metric(std::move(name), freq, Point::after_step, false) {}
  bool should_run(const Trainer& trainer) const override;
  MetricValues operator()(Trainer& trainer) override;
};

/// Training rows per second between one call and the next. `batch_size`: rows to count per batch;
/// by default those of the batch.
class SamplesPerSecond : public Metric {
 public:
  /// `name`: of the value.
  explicit SamplesPerSecond(std::string name = "samples_per_second", int64_t freq = 1,
                            std::optional<int64_t> batch_size = std::nullopt)
      : Metric(std::move(name), freq, Point::after_step, false), batch_size_(batch_size) {}
  bool should_run(const Trainer& trainer) const override;
  MetricValues operator()(Trainer& trainer) override;

 private:
  std::optional<int64_t> batch_size_;
  std::optional<std::chrono::steady_clock::time_point> last_;
};

}  // namespace gradus::hooks
