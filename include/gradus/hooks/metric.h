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

/// A number, or a one-element tensor that is read later: a metric need not wait for the device.
using MetricValue = std::variant<double, torch::Tensor>;
using MetricValues = std::vector<std::pair<std::string, MetricValue>>;

/// Collects numbers at one point of the run; `MetricsHook` averages and logs them.
class Metric {
 public:
  std::string name;
  int64_t freq;     ///< every how many optimizer steps, in training; validation always collects
  Point phase;      ///< where it is called
  bool use_prefix;  ///< names get "train_" or "valid_" in front

  /// Throws `Error` G-HOOK-1 when `freq` is below 1.
  explicit Metric(std::string name, int64_t freq = 1, Point phase = Point::after_step,
                  bool use_prefix = true);
  virtual ~Metric() = default;

  virtual bool should_run(const Trainer& trainer) const;
  /// The values by name; none to leave this batch out.
  virtual MetricValues operator()(Trainer& trainer) = 0;

 protected:
  /// An entry of the step's result. Throws G-HOOK-7 with the step and the names it returned.
  static torch::Tensor from_result(Trainer& trainer, const std::string& key);
};

using TensorFunction = std::function<torch::Tensor(Trainer&)>;

struct LossOptions {
  int64_t freq = 1;
  std::string loss_key = "loss";
  TensorFunction loss_fn = {};  ///< in place of the result's entry
};

/// "loss": the loss, as it is after the step (gradient accumulation has divided it).
class Loss : public Metric {
 public:
  explicit Loss(LossOptions options = {});
  MetricValues operator()(Trainer& trainer) override;

 private:
  LossOptions options_;
};

struct AccuracyOptions {
  std::string name = "accuracy";
  int64_t freq = 1;
  std::string pred_key = "preds";
  std::string target_key = "targets";
  TensorFunction pred_fn = {};  ///< gives class numbers
  TensorFunction target_fn = {};
};

/// The share of right predictions. Predictions of two and more dimensions are scores per class
/// (largest wins), whole numbers are classes, other one-dimensional ones are probabilities of
/// class 1.
class Accuracy : public Metric {
 public:
  explicit Accuracy(AccuracyOptions options = {});
  explicit Accuracy(std::string pred_key, std::string target_key = "targets");
  MetricValues operator()(Trainer& trainer) override;

 private:
  AccuracyOptions options_;
};

/// The learning rate of `LRSchedulerHook`, in training.
class LRStats : public Metric {
 public:
  explicit LRStats(std::string name = "lr", int64_t freq = 1)
      : Metric(std::move(name), freq, Point::after_step, false) {}
  bool should_run(const Trainer& trainer) const override;
  MetricValues operator()(Trainer& trainer) override;
};

/// Training rows per second between one call and the next.
class SamplesPerSecond : public Metric {
 public:
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
