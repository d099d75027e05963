#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// Sets the learning rates of an optimizer's groups during training.
///
/// A schedule sets the rates for step 0 when it is made; `step()` moves on by one. The optimizer
/// must outlive it. States have the layout of the Python class of the same name. Thread-safety:
/// none.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;

  /// Moves on by one optimizer step. Throws `Error` G-SCHED-5 where a metric is needed.
  virtual void step() = 0;
  /// Takes an evaluation result in. Throws G-SCHED-5 where none is wanted.
  virtual void step(double metric);
  /// Whether `step(metric)` is to be called, after evaluations, in place of `step()`.
  virtual bool is_metric_driven() const { return false; }

  /// The rates set last, one per group.
  virtual std::vector<double> last_lr() const = 0;
  /// The rates after `steps` calls of `step()` in all; empty where they do not follow from that
  /// number alone.
  virtual std::vector<double> rates_after(int64_t /*steps*/) const { return {}; }
  /// Calls of `step()` so far.
  virtual int64_t steps_done() const { return 0; }

  /// The state, in the layout of Python's scheduler.
  virtual StateTree state_dict() const = 0;
  /// Takes over what `state_dict()` gave, here or in Python.
  virtual void load_state_dict(const StateTree& state) = 0;
};

/// Rates as a factor of the groups' initial ones: all schedules of transformers that
/// follow the step.
class LambdaLR : public LRScheduler {
 public:
  /// `factor(step)` multiplies the initial learning rates; `optimizer` must live longer than this.
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> factor);

  void step() override;
  using LRScheduler::step;
  std::vector<double> last_lr() const override { return last_lr_; }
  std::vector<double> rates_after(int64_t steps) const override;
  int64_t steps_done() const override { return last_epoch_; }
  StateTree state_dict() const override;
  void load_state_dict(const StateTree& state) override;

 private:
  void set_rates();

  Optimizer& optimizer_;
  std::function<double(int64_t)> factor_;
  std::vector<double> base_lrs_, last_lr_;
  int64_t last_epoch_ = 0;
  int64_t step_count_ = 1;
};

/// Settings of `ReduceLROnPlateau`, with torch's names and defaults.
struct ReduceLROnPlateauOptions {
  /// "min" if a smaller metric is better, "max" otherwise.
  std::string mode = "min";
  /// What the learning rate is multiplied by.
  double factor = 0.1;
  /// Metrics without improvement until that happens.
  int64_t patience = 10;
  /// How much better a metric must be to count.
  double threshold = 1e-4;
  /// "rel" if the threshold is a share of the best metric, "abs" otherwise.
  std::string threshold_mode = "rel";
  /// Metrics after a change that are not counted.
  int64_t cooldown = 0;
  std::vector<double> min_lr = {0.0};  ///< one for all groups or one each
  /// Smaller changes of the learning rate are left out.
  double eps = 1e-8;
};

/// `torch.optim.lr_scheduler.ReduceLROnPlateau`: lowers the rates when a metric stops improving.
class ReduceLROnPlateau : public LRScheduler {
 public:
  /// `optimizer` must live longer than this.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});

  void step() override;
  void step(double metric) override;
  bool is_metric_driven() const override { return true; }
  std::vector<double> last_lr() const override { return last_lr_; }
  StateTree state_dict() const override;
  void load_state_dict(const StateTree& state) override;

 private:
  void reduce();

  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  std::vector<double> min_lrs_, last_lr_;
  double best_;
  int64_t last_epoch_ = 0, cooldown_counter_ = 0, num_bad_epochs_ = 0;
};

/// Settings of `GreedyLR`, with transformers' names and defaults.
struct GreedyLROptions {
  /// "min" if a smaller metric is better, "max" otherwise.
  std::string mode = "min";
  /// What the learning rate is multiplied or divided by.
  double factor = 0.95;
  /// Metrics without improvement until the learning rate falls.
  int64_t patience = 10;
  /// How much better a metric must be to count.
  double threshold = 1e-6;
  /// "rel" if the threshold is a share of the best metric, "abs" otherwise.
  std::string threshold_mode = "abs";
  /// Metrics after a fall during which none counts as worse.
  int64_t cooldown = 0;
  /// Metrics after a rise during which none counts as better.
  int64_t warmup = 0;
  std::vector<double> min_lr = {1e-3};  ///< one for all groups or one each
  /// Upper bounds, one per group or one for all.
  std::vector<double> max_lr = {1.0};
  /// Smaller changes of the learning rate are left out.
  double eps = 1e-8;
  /// Log every change.
  bool verbose = false;
  bool smooth = false;  ///< average the metric over `window_size` values
  /// Metrics in the mean that is compared, with `smooth`.
  int64_t window_size = 50;
  int64_t reset_start = 500;  ///< reductions at the lower bound before everything starts over
};

/// `transformers.optimization.GreedyLR`: raises the rates while a metric improves, lowers them when
/// it does not.
class GreedyLR : public LRScheduler {
 public:
  /// `optimizer` must live longer than this.
  explicit GreedyLR(Optimizer& optimizer, GreedyLROptions options = {});

  void step() override;
  void step(double metric) override;
  bool is_metric_driven() const override { return true; }
  std::vector<double> last_lr() const override { return last_lr_; }
  StateTree state_dict() const override;
  void load_state_dict(const StateTree& state) override;

 private:
  double smoothed(double metric);
  void reduce();
  void increase();
  void reset();
  void say(const std::string& line) const;

  Optimizer& optimizer_;
  GreedyLROptions options_;
  std::vector<double> min_lrs_, max_lrs_, init_lrs_, last_lr_;
  std::vector<double> window_;
  double window_sum_ = 0.0;
  double best_;
  int64_t last_epoch_ = 0, cooldown_counter_ = 0, warmup_counter_ = 0, num_bad_epochs_ = 0,
          num_good_epochs_ = 0, reset_left_;
};

/// What a schedule is made from.
struct SchedulerArguments {
  const std::string& name;                    ///< what `--lr_scheduler_type` says
  std::optional<int64_t> num_warmup_steps;    ///< unset when not known
  std::optional<int64_t> num_training_steps;  ///< unset when not known
  const nlohmann::json& kwargs;  ///< `lr_scheduler_kwargs`; `ScheduleKwargs` reads and checks it

  /// `num_warmup_steps`, for schedules that need it. Throws `Error` G-SCHED-2 where unset.
  int64_t warmup_steps() const;
  /// `num_training_steps`, in the same way.
  int64_t training_steps() const;
};

/// Makes a schedule for an optimizer, which outlives it.
using SchedulerMaker =
    std::function<std::unique_ptr<LRScheduler>(Optimizer& optimizer, const SchedulerArguments&)>;

/// One row of the table of schedules.
struct SchedulerEntry {
  std::string name;               ///< what `--lr_scheduler_type` calls it
  SchedulerMaker make = nullptr;  ///< makes it
  /// It follows the metric of evaluations. Options are then checked for a run that evaluates, and
  /// `metric_for_best_model` is set.
  bool metric_driven = false;
};

/// Adds a schedule. From then on `--lr_scheduler_type`, its help, its error messages,
/// `gradus options` and `get_scheduler` know it.
///
///     gradus::register_scheduler({"halve", [](auto& optimizer, const auto&) {
///       return std::make_unique<gradus::LambdaLR>(
///           optimizer, [](int64_t step) { return std::pow(0.5, step / 1000); });
///     }});
///
/// Call it before the first Trainer is made, from main() or while static objects are set up.
/// Thread-safe. Throws `Error` G-REG-1 for a name that is taken, G-REG-2 for an empty name or no
/// `make`.
void register_scheduler(SchedulerEntry entry);

/// Makes a schedule of the table, as `transformers.get_scheduler` does. `kwargs` is
/// `lr_scheduler_kwargs`. Throws `Error` G-SCHED-1 for an unknown name, G-SCHED-2 for a missing
/// number of steps, G-SCHED-3 for an unknown option (with those known), G-SCHED-4 for a value that
/// cannot be used. `constant` and `constant_with_warmup` ignore `kwargs`, as in transformers.
std::unique_ptr<LRScheduler> get_scheduler(const std::string& name, Optimizer& optimizer,
                                           std::optional<int64_t> num_warmup_steps,
                                           std::optional<int64_t> num_training_steps,
                                           const nlohmann::json& kwargs);
/// The same with the defaults of `lr_scheduler_kwargs`.
std::unique_ptr<LRScheduler> get_scheduler(
    const std::string& name, Optimizer& optimizer,
    std::optional<int64_t> num_warmup_steps = std::nullopt,
    std::optional<int64_t> num_training_steps = std::nullopt);

/// The names of all schedules: the twelve of transformers, then those registered.
std::vector<std::string> scheduler_names();
/// Whether the schedule of this name follows the metric of evaluations; false for unknown names.
bool is_metric_driven_scheduler(const std::string& name);

}  // namespace gradus
