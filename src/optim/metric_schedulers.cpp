#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/optim/schedulers.h>

#include <cmath>
#include <limits>

#include <gradus/core/json.h>
#include <gradus/core/nearest.h>
#include "optim/saved_options.h"

namespace gradus {
namespace {

double worst(const std::string& mode) {
  const double infinity = std::numeric_limits<double>::infinity();
  return mode == "min" ? infinity : -infinity;
}

bool is_better(const std::string& mode, const std::string& threshold_mode, double threshold,
               double value, double best) {
  if (mode == "min")
    return value < (threshold_mode == "rel" ? best * (1.0 - threshold) : best - threshold);
  return value > (threshold_mode == "rel" ? best * (1.0 + threshold) : best + threshold);
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error("G-SCHED-4", ErrorKind::usage, message);
}

void check(const std::string& schedule, double factor, const std::string& mode,
           const std::string& threshold_mode) {
  if (!(factor < 1.0))
    refuse(schedule + ": factor must be below 1.0, received " + json_number(factor));
  if (mode != "min" && mode != "max")
    refuse(schedule + ": mode must be min or max, received '" + mode + "'");
  if (threshold_mode != "rel" && threshold_mode != "abs")
    refuse(schedule + ": threshold_mode must be rel or abs, received '" + threshold_mode + "'");
}

std::vector<double> per_group(const std::string& schedule, const char* what,
                              const std::vector<double>& values, size_t groups) {
  if (values.size() == 1) return std::vector<double>(groups, values[0]);
  if (values.size() != groups)
    refuse(schedule + ": expected 1 or " + std::to_string(groups) + " values for " + what +
           " (one per parameter group), received " + std::to_string(values.size()));
  return values;
}

std::vector<double> rates(const Optimizer& optimizer) {
  std::vector<double> result;
  for (const auto& group : optimizer.param_groups()) result.push_back(group.lr);
  return result;
}

[[noreturn]] void needs_metric(const char* name) {
  throw Error(
      "G-SCHED-5", ErrorKind::usage,
      std::string(name) + " follows a metric and cannot step without one",
      "Call step(metric) after each evaluation; set eval_strategy so that there are evaluations.");
}

}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer),
      options_(std::move(options)),
      last_lr_(rates(optimizer)),
      best_(worst(options_.mode)) {
  check("reduce_lr_on_plateau", options_.factor, options_.mode, options_.threshold_mode);
  min_lrs_ = per_group("reduce_lr_on_plateau", "min_lr", options_.min_lr, last_lr_.size());
}

void ReduceLROnPlateau::step() { needs_metric("reduce_lr_on_plateau"); }

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (is_better(options_.mode, options_.threshold_mode, options_.threshold, metric, best_)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > options_.patience) {
    reduce();
    cooldown_counter_ = options_.cooldown;
    num_bad_epochs_ = 0;
  }
  last_lr_ = rates(optimizer_);
}

void ReduceLROnPlateau::reduce() {
  auto& groups = optimizer_.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const double lowered = std::max(groups[g].lr * options_.factor, min_lrs_[g]);
    if (groups[g].lr - lowered > options_.eps) groups[g].lr = lowered;
  }
}

StateTree ReduceLROnPlateau::state_dict() const {
  return StateTree::dict()
      .set("factor", options_.factor)
      .set("default_min_lr",
           options_.min_lr.size() == 1 ? StateTree(options_.min_lr[0]) : StateTree())
      .set("min_lrs", saved::list_of(min_lrs_))
      .set("patience", options_.patience)
      .set("cooldown", options_.cooldown)
      .set("eps", options_.eps)
      .set("last_epoch", last_epoch_)
      .set("_last_lr", saved::list_of(last_lr_))
      .set("mode_worse", worst(options_.mode))
      .set("mode", options_.mode)
      .set("threshold", options_.threshold)
      .set("threshold_mode", options_.threshold_mode)
      .set("best", best_)
      .set("cooldown_counter", cooldown_counter_)
      .set("num_bad_epochs", num_bad_epochs_);
}

void ReduceLROnPlateau::load_state_dict(const StateTree& state) {
  saved::take(state, "factor", options_.factor);
  saved::take(state, "min_lrs", min_lrs_);
  saved::take(state, "patience", options_.patience);
  saved::take(state, "cooldown", options_.cooldown);
  saved::take(state, "eps", options_.eps);
  saved::take(state, "last_epoch", last_epoch_);
  saved::take(state, "_last_lr", last_lr_);
  saved::take(state, "mode", options_.mode);
  saved::take(state, "threshold", options_.threshold);
  saved::take(state, "threshold_mode", options_.threshold_mode);
  saved::take(state, "best", best_);
  saved::take(state, "cooldown_counter", cooldown_counter_);
  saved::take(state, "num_bad_epochs", num_bad_epochs_);
  min_lrs_ =
      per_group("reduce_lr_on_plateau", "min_lrs", min_lrs_, optimizer_.param_groups().size());
}

GreedyLR::GreedyLR(Optimizer& optimizer, GreedyLROptions options)
    : optimizer_(optimizer),
      options_(std::move(options)),
      init_lrs_(rates(optimizer)),
      last_lr_(init_lrs_),
      best_(worst(options_.mode)),
      reset_left_(options_.reset_start) {
  check("greedy", options_.factor, options_.mode, options_.threshold_mode);
  min_lrs_ = per_group("greedy", "min_lr", options_.min_lr, init_lrs_.size());
  max_lrs_ = per_group("greedy", "max_lr", options_.max_lr, init_lrs_.size());
}

void GreedyLR::step() { needs_metric("greedy"); }

double GreedyLR::smoothed(double metric) {
  window_.push_back(metric);
  window_sum_ += metric;
  if (int64_t(window_.size()) > options_.window_size) {
    window_sum_ -= window_.front();
    window_.erase(window_.begin());
  }
  return window_sum_ / double(window_.size());
}

void GreedyLR::step(double metric) {
  if (options_.smooth) metric = smoothed(metric);
  ++last_epoch_;
  if (cooldown_counter_ > 0 || warmup_counter_ > 0) {
    --(cooldown_counter_ > 0 ? cooldown_counter_ : warmup_counter_);
    num_bad_epochs_ = num_good_epochs_ = 0;
  } else {
    if (is_better(options_.mode, options_.threshold_mode, options_.threshold, metric, best_)) {
      best_ = metric;
      num_bad_epochs_ = 0;
      ++num_good_epochs_;
    } else {
      ++num_bad_epochs_;
      num_good_epochs_ = 0;
    }
    if (num_good_epochs_ > options_.patience) {
      increase();
      warmup_counter_ = options_.warmup;
      num_good_epochs_ = 0;
    } else if (num_bad_epochs_ > options_.patience) {
      reduce();
      cooldown_counter_ = options_.cooldown;
      num_bad_epochs_ = 0;
    }
  }
  last_lr_ = rates(optimizer_);
}

void GreedyLR::reduce() {
  bool all_at_minimum = true;
  auto& groups = optimizer_.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const double lowered = std::max(groups[g].lr * options_.factor, min_lrs_[g]);
    if (groups[g].lr - lowered > options_.eps) {
      groups[g].lr = lowered;
      say("Epoch " + std::to_string(last_epoch_) + ": reducing learning rate of group " +
          std::to_string(g) + " to " + json_number(lowered) + ".");
    }
    if (groups[g].lr > min_lrs_[g]) all_at_minimum = false;
  }
  if (all_at_minimum && --reset_left_ <= 0) reset();
}

void GreedyLR::increase() {
  auto& groups = optimizer_.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const double raised = std::min(groups[g].lr / options_.factor, max_lrs_[g]);
    if (raised - groups[g].lr > options_.eps) {
      groups[g].lr = raised;
      say("Epoch " + std::to_string(last_epoch_) + ": increasing learning rate of group " +
          std::to_string(g) + " to " + json_number(raised) + ".");
    }
  }
  reset_left_ = options_.reset_start;
}

void GreedyLR::reset() {
  auto& groups = optimizer_.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) groups[g].lr = init_lrs_[g];
  best_ = worst(options_.mode);
  num_bad_epochs_ = num_good_epochs_ = cooldown_counter_ = warmup_counter_ = 0;
  reset_left_ = options_.reset_start;
  window_.clear();
  window_sum_ = 0.0;
  say("Scheduler reset to initial state.");
}

void GreedyLR::say(const std::string& line) const {
  if (options_.verbose) log_print(line + "\n");
}

StateTree GreedyLR::state_dict() const {
  auto state = StateTree::dict()
                   .set("factor", options_.factor)
                   .set("min_lrs", saved::list_of(min_lrs_))
                   .set("max_lrs", saved::list_of(max_lrs_))
                   .set("patience", options_.patience)
                   .set("verbose", options_.verbose)
                   .set("cooldown", options_.cooldown)
                   .set("warmup", options_.warmup)
                   .set("cooldown_counter", cooldown_counter_)
                   .set("warmup_counter", warmup_counter_)
                   .set("mode", options_.mode)
                   .set("threshold", options_.threshold)
                   .set("threshold_mode", options_.threshold_mode)
                   .set("best", best_)
                   .set("num_bad_epochs", num_bad_epochs_)
                   .set("num_good_epochs", num_good_epochs_)
                   .set("eps", options_.eps)
                   .set("last_epoch", last_epoch_)
                   .set("smooth", options_.smooth)
                   .set("window_size", options_.window_size)
                   .set("reset_start", reset_left_)
                   .set("reset_start_original", options_.reset_start)
                   .set("_last_lr", saved::list_of(last_lr_))
                   .set("_init_lrs", saved::list_of(init_lrs_));
  if (options_.smooth)
    state.set("_streaming_avg", StateTree::dict()
                                    .set("window_size", options_.window_size)
                                    .set("values", saved::list_of(window_))
                                    .set("sum", window_sum_));
  return state;
}

void GreedyLR::load_state_dict(const StateTree& state) {
  saved::take(state, "factor", options_.factor);
  saved::take(state, "min_lrs", min_lrs_);
  saved::take(state, "max_lrs", max_lrs_);
  saved::take(state, "patience", options_.patience);
  saved::take(state, "verbose", options_.verbose);
  saved::take(state, "cooldown", options_.cooldown);
  saved::take(state, "warmup", options_.warmup);
  saved::take(state, "cooldown_counter", cooldown_counter_);
  saved::take(state, "warmup_counter", warmup_counter_);
  saved::take(state, "mode", options_.mode);
  saved::take(state, "threshold", options_.threshold);
  saved::take(state, "threshold_mode", options_.threshold_mode);
  saved::take(state, "best", best_);
  saved::take(state, "num_bad_epochs", num_bad_epochs_);
  saved::take(state, "num_good_epochs", num_good_epochs_);
  saved::take(state, "eps", options_.eps);
  saved::take(state, "last_epoch", last_epoch_);
  saved::take(state, "smooth", options_.smooth);
  saved::take(state, "window_size", options_.window_size);
  saved::take(state, "reset_start", reset_left_);
  saved::take(state, "reset_start_original", options_.reset_start);
  saved::take(state, "_last_lr", last_lr_);
  saved::take(state, "_init_lrs", init_lrs_);
  if (const auto* average = state.find("_streaming_avg")) {
    saved::take(*average, "values", window_);
    saved::take(*average, "sum", window_sum_);
  }
  auto& groups = optimizer_.param_groups();
  min_lrs_ = per_group("greedy", "min_lrs", min_lrs_, groups.size());
  max_lrs_ = per_group("greedy", "max_lrs", max_lrs_, groups.size());
  for (size_t g = 0; g < std::min(groups.size(), last_lr_.size()); ++g) groups[g].lr = last_lr_[g];
}

}  // namespace gradus
