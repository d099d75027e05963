#include "optim/step_schedules.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/optim/schedule_kwargs.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradus::schedules {
namespace {

using Factor = std::function<double(int64_t)>;
constexpr double kPi = std::numbers::pi;

double share(int64_t part, int64_t whole) {
  return double(part) / double(std::max<int64_t>(1, whole));
}

// `after` from the end of a linear warm-up on.
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

std::unique_ptr<LRScheduler> scaled(Optimizer& optimizer, Factor factor) {
  return std::make_unique<LambdaLR>(optimizer, std::move(factor));
}

ScheduleKwargs known(const SchedulerArguments& args, std::vector<std::string> names) {
  return {args.name, args.kwargs, std::move(names)};
}

}  // namespace

using Made = std::unique_ptr<LRScheduler>;

Made make_constant(Optimizer& optimizer, const SchedulerArguments&) {
  return scaled(optimizer, [](int64_t) { return 1.0; });
}

Made make_constant_with_warmup(Optimizer& optimizer, const SchedulerArguments& args) {
  return scaled(optimizer, with_warmup(args.warmup_steps(), [](int64_t) { return 1.0; }));
}

Made make_linear(Optimizer& optimizer, const SchedulerArguments& args) {
  known(args, {});
  return scaled(optimizer, linear(args.warmup_steps(), args.training_steps()));
}

Made make_cosine(Optimizer& optimizer, const SchedulerArguments& args) {
  const double cycles = known(args, {"num_cycles"}).number("num_cycles", 0.5);
  return scaled(optimizer, cosine(args.warmup_steps(), args.training_steps(), cycles, 0.0));
}

Made make_cosine_with_restarts(Optimizer& optimizer, const SchedulerArguments& args) {
  const double cycles = known(args, {"num_cycles"}).number("num_cycles", 1.0);
  return scaled(optimizer,
                cosine_with_restarts(args.warmup_steps(), args.training_steps(), cycles));
}

Made make_polynomial(Optimizer& optimizer, const SchedulerArguments& args) {
  const auto kwargs = known(args, {"lr_end", "power"});
  const double last = kwargs.number("lr_end", 1e-7), power = kwargs.number("power", 1.0);
  const double first = optimizer.default_lr();
  if (!(first > last))
    kwargs.refuse("lr_end (" + json_number(last) + ") must be smaller than initial lr (" +
                  json_number(first) + ")");
  return scaled(optimizer,
                polynomial(args.warmup_steps(), args.training_steps(), first, last, power));
}

Made make_inverse_sqrt(Optimizer& optimizer, const SchedulerArguments& args) {
  const int64_t warmup = args.warmup_steps();
  const auto timescale = known(args, {"timescale"}).number("timescale");
  return scaled(optimizer,
                inverse_sqrt(warmup, timescale.value_or(warmup != 0 ? double(warmup) : 10000.0)));
}

Made make_cosine_with_min_lr(Optimizer& optimizer, const SchedulerArguments& args) {
  const auto kwargs = known(args, {"num_cycles", "min_lr", "min_lr_rate"});
  return scaled(optimizer,
                cosine(args.warmup_steps(), args.training_steps(), kwargs.number("num_cycles", 0.5),
                       lowest_rate(kwargs, optimizer.default_lr())));
}

Made make_cosine_warmup_with_min_lr(Optimizer& optimizer, const SchedulerArguments& args) {
  const auto kwargs = known(args, {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"});
  return scaled(optimizer, cosine_warmup_with_min_lr(args.warmup_steps(), args.training_steps(),
                                                     kwargs.number("num_cycles", 0.5),
                                                     lowest_rate(kwargs, optimizer.default_lr()),
                                                     kwargs.number("warmup_lr_rate")));
}

Made make_warmup_stable_decay(Optimizer& optimizer, const SchedulerArguments& args) {
  const auto kwargs = known(args, {"num_decay_steps", "num_stable_steps", "warmup_type",
                                   "decay_type", "min_lr_ratio", "num_cycles"});
  return scaled(optimizer,
                warmup_stable_decay(kwargs, args.warmup_steps(), args.num_training_steps));
}

}  // namespace gradus::schedules
