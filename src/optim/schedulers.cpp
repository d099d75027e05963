#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/schedule_kwargs.h>
#include <gradus/optim/schedulers.h>

#include "core/registry.h"
#include "optim/saved_options.h"
#include "optim/step_schedules.h"

namespace gradus {
namespace {

std::unique_ptr<LRScheduler> make_plateau(Optimizer& optimizer, const SchedulerArguments& args) {
  const ScheduleKwargs kwargs(
      args.name, args.kwargs,
      {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"});
  const ReduceLROnPlateauOptions d;
  const ReduceLROnPlateauOptions options = {
      kwargs.choice("mode", d.mode, {"min", "max"}),
      kwargs.number("factor", d.factor),
      kwargs.integer("patience").value_or(d.patience),
      kwargs.number("threshold", d.threshold),
      kwargs.choice("threshold_mode", d.threshold_mode, {"rel", "abs"}),
      kwargs.integer("cooldown").value_or(d.cooldown),
      kwargs.numbers("min_lr", d.min_lr),
      kwargs.number("eps", d.eps)};
  return std::make_unique<ReduceLROnPlateau>(optimizer, options);
}

std::unique_ptr<LRScheduler> make_greedy(Optimizer& optimizer, const SchedulerArguments& args) {
  const ScheduleKwargs kwargs(
      args.name, args.kwargs,
      {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "warmup", "min_lr",
       "max_lr", "eps", "verbose", "smooth", "window_size", "reset_start"});
  const GreedyLROptions d;
  const GreedyLROptions options = {
      kwargs.choice("mode", d.mode, {"min", "max"}),
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
  return std::make_unique<GreedyLR>(optimizer, options);
}

// The names of transformers, in its order.
std::vector<SchedulerEntry> builtin_schedulers() {
  using namespace schedules;
  return {{"linear", make_linear},
          {"cosine", make_cosine},
          {"cosine_with_restarts", make_cosine_with_restarts},
          {"polynomial", make_polynomial},
          {"constant", make_constant},
          {"constant_with_warmup", make_constant_with_warmup},
          {"inverse_sqrt", make_inverse_sqrt},
          {"reduce_lr_on_plateau", make_plateau, /*metric_driven=*/true},
          {"cosine_with_min_lr", make_cosine_with_min_lr},
          {"cosine_warmup_with_min_lr", make_cosine_warmup_with_min_lr},
          {"warmup_stable_decay", make_warmup_stable_decay},
          {"greedy", make_greedy, /*metric_driven=*/true}};
}

Registry<SchedulerEntry>& schedulers() {
  static Registry<SchedulerEntry> table("register_scheduler", builtin_schedulers());
  return table;
}

int64_t need(std::optional<int64_t> steps, const std::string& schedule, const char* what) {
  if (!steps)
    throw Error("G-SCHED-2", ErrorKind::usage,
                schedule + " requires `" + what + "`, please provide that argument.");
  return *steps;
}

}  // namespace

void register_scheduler(SchedulerEntry entry) { schedulers().add(std::move(entry)); }
std::vector<std::string> scheduler_names() { return schedulers().names(); }

bool is_metric_driven_scheduler(const std::string& name) {
  const auto entry = schedulers().find(name);
  return entry && entry->metric_driven;
}

int64_t SchedulerArguments::warmup_steps() const {
  return need(num_warmup_steps, name, "num_warmup_steps");
}
int64_t SchedulerArguments::training_steps() const {
  return need(num_training_steps, name, "num_training_steps");
}

std::unique_ptr<LRScheduler> get_scheduler(const std::string& name, Optimizer& optimizer,
                                           std::optional<int64_t> num_warmup_steps,
                                           std::optional<int64_t> num_training_steps,
                                           const nlohmann::json& kwargs) {
  const auto entry = schedulers().find(name);
  if (!entry) {
    const auto names = scheduler_names();
    throw Error("G-SCHED-1", ErrorKind::usage,
                "unknown learning rate schedule '" + name + "'; expected " + join_or(names),
                did_you_mean(name, names));
  }
  return entry->make(optimizer, {name, num_warmup_steps, num_training_steps, kwargs});
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
