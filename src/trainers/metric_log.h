#pragma once

#include <gradus/core/metrics.h>
#include <gradus/distributed/process_group.h>
#include <gradus/train/callback.h>
#include <torch/types.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/shared_state.h"

namespace gradus {

/// The metrics of one batch. They stay on the device; each value is a scalar tensor.
class MetricBatch {
 public:
  /// Σ `sum` / Σ `count` over all processes; 0 where the count is 0.
  void mean(std::string name, const torch::Tensor& sum, const torch::Tensor& count);
  /// The same, but a batch whose count is 0 does not count in the log's mean.
  void mean_if_any(std::string name, const torch::Tensor& sum, const torch::Tensor& count);
  /// As `mean`, but a batch whose value is NaN does not count in the log's mean.
  void mean_unless_nan(std::string name, const torch::Tensor& sum, const torch::Tensor& count);
  /// The mean of all elements, which are equally many in each process.
  void mean(std::string name, const torch::Tensor& values);
  /// The least over all processes.
  void least(std::string name, const torch::Tensor& value);
  /// The greatest over all processes.
  void greatest(std::string name, const torch::Tensor& value);
  /// The least over all processes of what is not NaN; a batch without one does not count.
  void least_unless_nan(std::string name, const torch::Tensor& value);
  /// The greatest, in the same way.
  void greatest_unless_nan(std::string name, const torch::Tensor& value);
  /// The difference of two metrics that were added before; left out where one of them is.
  void difference(std::string name, const std::string& of, const std::string& minus);
  /// Tokens of the batch, for the count `num_tokens` of all training batches.
  void tokens(const torch::Tensor& count);

 private:
  friend class MetricLog;
  enum class Kind { mean, mean_if_any, mean_unless_nan, least, greatest, difference };
  struct Entry {
    std::string name;
    Kind kind;
    size_t first = 0, second = 0;  ///< entries that a difference is made of
    bool has_all = false;          ///< Of all processes, also in a last batch that is not full.
  };
  /// A count that is undefined is 1.
  void add(std::string name, Kind kind, const torch::Tensor& value, const torch::Tensor& count);
  size_t place_of(const std::string& name) const;
  std::vector<Entry> entries_;
  std::vector<torch::Tensor> numbers_;  ///< value and count of each entry; 0 for differences
  torch::Tensor tokens_;
};

/// The means of metrics between two logs, as trl's trainers keep them: for training and for
/// evaluation apart, over all processes.
///
/// It is a callback of its trainer, so that checkpoints keep what has come together since the last
/// log: a resumed run logs the same values. In a checkpoint of trl, which lacks it, the number of
/// tokens is that of the last log. Nothing waits for the device or for other processes before a
/// log, a save or an evaluation; then one exchange has the numbers of all batches. The sums of a
/// single process stay where they are on the device, so that a recorded step adds to them when it
/// is replayed. Thread-safety: none; every process calls the same functions in the same order.
class MetricLog : public TrainerCallback, public SharedState {
 public:
  /// `group` is null for a single process.
  explicit MetricLog(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  /// Takes note of a batch of training, or of an evaluation. Sums with a count are those of the
  /// first `processes` processes (0: of all), as accelerate's `gather_for_metrics` leaves out what
  /// only repeats rows.
  void note(const MetricBatch& batch, bool training, int64_t processes = 0);
  /// Adds the means since the last call to `logs`, with "eval_" before their names unless
  /// `training`, and `num_tokens`; then starts anew.
  void write(Logs& logs, bool training);

  std::string name() const override { return "MetricLog"; }
  void on_train_begin(const TrainingArguments&, TrainerState&, TrainerControl&,
                      const CallbackContext&) override;
  nlohmann::json state_dict() const override;
  void load_state_dict(const nlohmann::json& state) override;
  void gather_state() override { exchange(); }

 private:
  struct Means {
    std::vector<std::string> names;
    torch::Tensor sums;  ///< (names, 2): the sum of the batches' values, and how many there were
  };
  /// The numbers of a batch in this process, on their way to the others.
  struct Noted {
    std::vector<MetricBatch::Entry> entries;
    torch::Tensor numbers;
    bool has_tokens = false;
    bool training = true;
    int64_t processes = 0;  ///< See `note`.
  };
  /// Adds what was noted in all processes since the last exchange to the means.
  void exchange();
  /// `all` has one row for each process.
  void add(const Noted& noted, const torch::Tensor& all);
  /// Adds values and counts (names, 2) of a batch to the means.
  static void add(std::vector<Means>& means, const std::vector<std::string>& names,
                  const torch::Tensor& added);
  /// The sums of all kinds of batches, by name: value and count.
  static std::vector<std::pair<std::string, std::pair<double, double>>> totals_of(
      const std::vector<Means>& means);

  std::shared_ptr<ProcessGroup> group_;
  std::vector<Noted> noted_;
  /// Of evaluation and of training; batches with other metrics have sums of their own.
  std::array<std::vector<Means>, 2> means_;
  torch::Tensor tokens_;
  bool counts_tokens_ = false;
  bool restored_ = false;
};

}  // namespace gradus
