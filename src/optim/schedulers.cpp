#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/optim/schedulers.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/saved_options.h"
#include "optim/schedule_kwargs.h"

namespace gradus {
namespace {

using Factor = std::function<double(int64_t)>;
constexpr double kPi = std::numbers::pi;

double share(int64_t part, int64_t whole) {
  return double(part) / double(std::max<int64_t>(1, whole));
}

/// `after` from the end of a linear warm-up on.
template <class F>
Factor with_warmup(int64_t warmup, F after) {
  return [=](int64_t step) { return step < warmup ? share(step, warmup) : after(step); };
}

double half_cosine(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(kPi * cycles * 2.0 * progress));
}

Factor linear(int64_t warmup, int64_t total) {
  return with_warmup(
      warmup, [=](int64_t step) { return std::max(0.0, share(total - step, total - warmup)); });
}

Factor cosine(int64_t warmup, int64_t total, double cycles, double lowest) {
  return with_warmup(warmup, [=](int64_t step) {
    return std::max(
        0.0, half_cosine(cycles, share(step - warmup, total - warmup)) * (1 - lowest) + lowest);
  });
}

Factor cosine_with_restarts(int64_t warmup, int64_t total, double cycles) {
  return with_warmup(warmup, [=](int64_t step) {
    const double progress = share(step - warmup, total - warmup);
    if (progress >= 1.0) return 0.0;
    return std::max(0.0, 0.5 * (1.0 + std::cos(kPi * std::fmod(cycles * progress, 1.0))));
  });
}

// Where warm-up takes all steps the reference divides by zero; here the end value stands.
Factor polynomial(int64_t warmup, int64_t total, double first, double last, double power) {
  return with_warmup(warmup, [=](int64_t step) {
    if (step > total || total == warmup) return last / first;
    const double remaining = 1 - double(step - warmup) / double(total - warmup);
    return ((first - last) * std::pow(remaining, power) + last) / first;
  });
}

Factor inverse_sqrt(int64_t warmup, double timescale) {
  return with_warmup(warmup, [=](int64_t step) {
    return 1.0 / std::sqrt((double(step) + timescale - double(warmup)) / timescale);
  });
}

Factor cosine_warmup_with_min_lr(int64_t warmup, int64_t total, double cycles, double lowest,
                                 std::optional<double> first) {
  return [=](int64_t step) {
    if (step < warmup) {
      if (!first) return double(step + 1) / std::max(1.0, double(warmup));
      return *first + (1.0 - *first) * double(step) / std::max(1.0, double(warmup - 1));
    }
    const double progress = double(step - warmup + 1) / std::max(1.0, double(total - warmup));
    return std::max(0.0, half_cosine(cycles, progress) * (1 - lowest) + lowest);
  };
}

struct StableDecay {
  int64_t warmup, stable, decay;
  std::string warmup_type, decay_type;
  double lowest, cycles;

  double operator()(int64_t step) const {
    const auto lifted = [&](double factor) {
      return std::max(0.0, factor * (1.0 - lowest) + lowest);
    };
    if (step < warmup) {
      const double progress = share(step, warmup);
      if (warmup_type == "linear") return lifted(progress);
      return lifted(warmup_type == "cosine" ? 0.5 * (1.0 - std::cos(kPi * progress))
                                            : 1.0 - std::sqrt(1.0 - progress));
    }
    if (step < warmup + stable) return 1.0;
    if (step >= warmup + stable + decay) return lowest;
    const double progress = share(step - warmup - stable, decay);
    if (decay_type == "linear") return lifted(1.0 - progress);
    return lifted(decay_type == "cosine" ? half_cosine(cycles, progress)
                                         : 1.0 - std::sqrt(progress));
  }
};

StableDecay warmup_stable_decay(const ScheduleKwargs& kwargs, int64_t warmup,
                                std::optional<int64_t> total) {
  const std::vector<std::string> shapes = {"linear", "cosine", "1-sqrt"};
  const auto decay = kwargs.integer("num_decay_steps");
  auto stable = kwargs.integer("num_stable_steps");
  if (!decay) kwargs.missing("num_decay_steps");
  if (!total && !stable)
    throw Error("G-SCHED-2", ErrorKind::usage,
                "warmup_stable_decay needs the number of training steps or num_stable_steps, "
                "received neither");
  if (total && stable)
    log_warning_once(
        "Both num_training_steps and num_stable_steps are specified. num_stable_steps will be "
        "used.");
  if (!stable) stable = *total - warmup - *decay;
  return {warmup,
          *stable,
          *decay,
          kwargs.choice("warmup_type", "linear", shapes),
          kwargs.choice("decay_type", "cosine", shapes),
          kwargs.number("min_lr_ratio", 0.0),
          kwargs.number("num_cycles", 0.5)};
}

double lowest_rate(const ScheduleKwargs& kwargs, double default_lr) {
  const auto min_lr = kwargs.number("min_lr"), rate = kwargs.number("min_lr_rate");
  if (min_lr && rate) kwargs.refuse("only one of min_lr and min_lr_rate may be set, received both");
  if (!min_lr && !rate)
    kwargs.refuse("one of min_lr and min_lr_rate must be set, received neither");
  return min_lr ? *min_lr / default_lr : *rate;
}

struct Steps {
  const std::string& name;
  std::optional<int64_t> warmup_steps, training_steps;

  int64_t warmup() const { return need(warmup_steps, "num_warmup_steps"); }
  int64_t total() const { return need(training_steps, "num_training_steps"); }

 private:
  int64_t need(std::optional<int64_t> steps, const char* what) const {
    if (!steps)
      throw Error("G-SCHED-2", ErrorKind::usage,
                  name + " requires `" + what + "`, please provide that argument.");
    return *steps;
  }
};

Factor make_factor(const std::string& name, const Steps& steps, double default_lr,
                   const nlohmann::json& json) {
  const auto known = [&](std::vector<std::string> names) {
    return ScheduleKwargs(name, json, std::move(names));
  };
  if (name == "constant_with_warmup")
    return with_warmup(steps.warmup(), [](int64_t) { return 1.0; });
  if (name == "linear") {
    known({});
    return linear(steps.warmup(), steps.total());
  }
  if (name == "cosine")
    return cosine(steps.warmup(), steps.total(), known({"num_cycles"}).number("num_cycles", 0.5),
                  0.0);
  if (name == "cosine_with_restarts")
    return cosine_with_restarts(steps.warmup(), steps.total(),
                                known({"num_cycles"}).number("num_cycles", 1.0));
  if (name == "polynomial") {
    const auto kwargs = known({"lr_end", "power"});
    const double last = kwargs.number("lr_end", 1e-7), power = kwargs.number("power", 1.0);
    if (!(default_lr > last))
      kwargs.refuse("lr_end (" + number_text(last) + ") must be smaller than initial lr (" +
                    number_text(default_lr) + ")");
    return polynomial(steps.warmup(), steps.total(), default_lr, last, power);
  }
  if (name == "inverse_sqrt") {
    const int64_t warmup = steps.warmup();
    return inverse_sqrt(
        warmup,
        known({"timescale"}).number("timescale").value_or(warmup != 0 ? double(warmup) : 10000.0));
  }
  if (name == "cosine_with_min_lr") {
    const auto kwargs = known({"num_cycles", "min_lr", "min_lr_rate"});
    return cosine(steps.warmup(), steps.total(), kwargs.number("num_cycles", 0.5),
                  lowest_rate(kwargs, default_lr));
  }
  if (name == "cosine_warmup_with_min_lr") {
    const auto kwargs = known({"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"});
    return cosine_warmup_with_min_lr(
        steps.warmup(), steps.total(), kwargs.number("num_cycles", 0.5),
        lowest_rate(kwargs, default_lr), kwargs.number("warmup_lr_rate"));
  }
  const auto kwargs = known({"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type",
                             "min_lr_ratio", "num_cycles"});
  return warmup_stable_decay(kwargs, steps.warmup(), steps.training_steps);
}

ReduceLROnPlateauOptions plateau_options(const nlohmann::json& json) {
  const ScheduleKwargs kwargs(
      "reduce_lr_on_plateau", json,
      {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"});
  const ReduceLROnPlateauOptions d;
  return {kwargs.choice("mode", d.mode, {"min", "max"}),
          kwargs.number("factor", d.factor),
          kwargs.integer("patience").value_or(d.patience),
          kwargs.number("threshold", d.threshold),
          kwargs.choice("threshold_mode", d.threshold_mode, {"rel", "abs"}),
          kwargs.integer("cooldown").value_or(d.cooldown),
          kwargs.numbers("min_lr", d.min_lr),
          kwargs.number("eps", d.eps)};
}

GreedyLROptions greedy_options(const nlohmann::json& json) {
  const ScheduleKwargs kwargs(
      "greedy", json,
      {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "warmup", "min_lr",
       "max_lr", "eps", "verbose", "smooth", "window_size", "reset_start"});
  const GreedyLROptions d;
  return {kwargs.choice("mode", d.mode, {"min", "max"}),
          kwargs.number("factor", d.factor),
          kwargs.integer("patience").value_or(d.patience),
          kwargs.number("threshold", d.threshold),
          kwargs.choice("threshold_mode", d.threshold_mode, {"rel", "abs"}),
          kwargs.integer("cooldown").value_or(d.cooldown),
          kwargs.integer("warmup").value_or(d.warmup),
          kwargs.numbers("min_lr", d.min_lr),
          kwargs.numbers("max_lr", d.max_lr),
          kwargs.number("eps", d.eps),
          kwargs.flag("verbose", d.verbose),
          kwargs.flag("smooth", d.smooth),
          kwargs.integer("window_size").value_or(d.window_size),
          kwargs.integer("reset_start").value_or(d.reset_start)};
}

}  // namespace

const std::vector<std::string>& scheduler_names() {
  static const std::vector<std::string> names = {"linear",
                                                 "cosine",
                                                 "cosine_with_restarts",
                                                 "polynomial",
                                                 "constant",
                                                 "constant_with_warmup",
                                                 "inverse_sqrt",
                                                 "reduce_lr_on_plateau",
                                                 "cosine_with_min_lr",
                                                 "cosine_warmup_with_min_lr",
                                                 "warmup_stable_decay",
                                                 "greedy"};
  return names;
}

std::unique_ptr<LRScheduler> get_scheduler(const std::string& name, Optimizer& optimizer,
                                           std::optional<int64_t> num_warmup_steps,
                                           std::optional<int64_t> num_training_steps,
                                           const nlohmann::json& kwargs) {
  const auto& names = scheduler_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const auto hint = did_you_mean(name, names);
    throw Error("G-SCHED-1", ErrorKind::usage,
                "unknown learning rate schedule '" + name + "'; expected " + join_or(names), hint);
  }
  if (name == "constant") return std::make_unique<LambdaLR>(optimizer, [](int64_t) { return 1.0; });
  if (name == "reduce_lr_on_plateau")
    return std::make_unique<ReduceLROnPlateau>(optimizer, plateau_options(kwargs));
  if (name == "greedy") return std::make_unique<GreedyLR>(optimizer, greedy_options(kwargs));
  return std::make_unique<LambdaLR>(optimizer,
                                    make_factor(name, {name, num_warmup_steps, num_training_steps},
                                                optimizer.default_lr(), kwargs));
}

std::unique_ptr<LRScheduler> get_scheduler(const std::string& name, Optimizer& optimizer,
                                           std::optional<int64_t> num_warmup_steps,
                                           std::optional<int64_t> num_training_steps) {
  return get_scheduler(name, optimizer, num_warmup_steps, num_training_steps,
                       nlohmann::json::object());
}

void LRScheduler::step(double) {
  throw Error("G-SCHED-5", ErrorKind::usage,
              "this learning rate schedule follows the step and takes no metric",
              "Call step() after each optimizer step.");
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> factor)
    : optimizer_(optimizer), factor_(std::move(factor)) {
  for (auto& group : optimizer_.param_groups()) {
    if (!group.initial_lr) group.initial_lr = group.lr;
    base_lrs_.push_back(*group.initial_lr);
  }
  set_rates();
}

void LambdaLR::set_rates() {
  const double factor = factor_(last_epoch_);
  auto& groups = optimizer_.param_groups();
  last_lr_.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) last_lr_[g] = groups[g].lr = base_lrs_[g] * factor;
}

void LambdaLR::step() {
  ++last_epoch_;
  ++step_count_;
  set_rates();
}

std::vector<double> LambdaLR::rates_after(int64_t steps) const {
  const double factor = factor_(steps);
  std::vector<double> rates;
  for (const double base : base_lrs_) rates.push_back(base * factor);
  return rates;
}

StateTree LambdaLR::state_dict() const {
  return StateTree::dict()
      .set("base_lrs", saved::list_of(base_lrs_))
      .set("last_epoch", last_epoch_)
      .set("_step_count", step_count_)
      .set("_is_initial", false)
      .set("_get_lr_called_within_step", false)
      .set("_last_lr", saved::list_of(last_lr_))
      .set("lr_lambdas",
           saved::list_of(std::vector<StateTree>(base_lrs_.size(), StateTree::dict())));
}

void LambdaLR::load_state_dict(const StateTree& state) {
  const auto count = state.at("base_lrs").items().size();
  if (count != base_lrs_.size())
    throw Error("G-SCHED-6", ErrorKind::checkpoint,
                "cannot load the schedule's state: it has " + std::to_string(count) +
                    " parameter groups, the optimizer " + std::to_string(base_lrs_.size()),
                "Resume with the optimizer that the checkpoint was made with.");
  saved::take(state, "base_lrs", base_lrs_);
  saved::take(state, "last_epoch", last_epoch_);
  step_count_ = last_epoch_ + 1;
  saved::take(state, "_step_count", step_count_);
  saved::take(state, "_last_lr", last_lr_);
}

}  // namespace gradus
