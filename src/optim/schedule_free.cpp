#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/schedule_free.h>

#include <cmath>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

struct Rectified {
  double factor;   // of the learning rate
  bool normalise;  // the variance estimate is long enough to divide by
};

Rectified rectified_adam(double beta2, int64_t step, bool silent_sgd_phase) {
  const double power = std::pow(beta2, double(step));
  const double longest = 2 / (1 - beta2) - 1;
  const double length = longest - 2 * double(step) * power / (1 - power);
  if (length <= 4) return {silent_sgd_phase ? 0.0 : 1.0, false};
  return {
      std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)),
      true};
}

ScheduleFreeKind kind_named(const std::string& optimizer) {
  return optimizer == "schedule_free_sgd"     ? ScheduleFreeKind::sgd
         : optimizer == "schedule_free_radam" ? ScheduleFreeKind::radam
                                              : ScheduleFreeKind::adamw;
}

}  // namespace

std::shared_ptr<Optimizer> ScheduleFree::from_arguments(std::vector<ParamGroupInit> groups,
                                                        const OptimizerArguments& args,
                                                        const OptimArgs& extra) {
  const auto kind = kind_named(extra.optimizer());
  ScheduleFreeOptions o{.lr = args.learning_rate,
                        .betas = {args.adam_beta1, args.adam_beta2},
                        .eps = args.adam_epsilon,
                        .weight_decay = args.weight_decay};
  if (kind != ScheduleFreeKind::radam) o.warmup_steps = args.warmup_steps;
  extra.read("weight_lr_power", o.weight_lr_power);
  extra.read("r", o.r);
  return std::make_shared<ScheduleFree>(kind, std::move(groups), o);
}

ScheduleFree::ScheduleFree(ScheduleFreeKind kind, std::vector<torch::Tensor> params,
                           ScheduleFreeOptions options)
    : ScheduleFree(kind, one_group(std::move(params)), options) {}

ScheduleFree::ScheduleFree(ScheduleFreeKind kind, std::vector<ParamGroupInit> groups,
                           ScheduleFreeOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      kind_(kind),
      options_(groups_.size(), options),
      progress_(groups_.size()) {
  if (kind == ScheduleFreeKind::sgd) {
    check_ranges();
    if (!(options.momentum > 0 && options.momentum < 1))
      throw Error("G-OPTIM-1", ErrorKind::usage,
                  name() + ": momentum must lie between 0 and 1, both excluded, received " +
                      std::to_string(options.momentum));
  } else {
    check_ranges({options.betas[0], options.betas[1]});
  }
}

std::string ScheduleFree::name() const {
  switch (kind_) {
    case ScheduleFreeKind::adamw: return "schedule_free_adamw";
    case ScheduleFreeKind::sgd: return "schedule_free_sgd";
    case ScheduleFreeKind::radam: return "schedule_free_radam";
  }
  return "schedule_free";
}

double ScheduleFree::interpolation(size_t group) const {
  return kind_ == ScheduleFreeKind::sgd ? options_[group].momentum : options_[group].betas[0];
}

void ScheduleFree::move_params(bool to_train) {
  torch::NoGradGuard no_grad;
  const auto& states = current_states();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const double beta = interpolation(g);
    const double weight = to_train ? 1 - beta : 1 - 1 / beta;
    for (size_t i = 0; i < states[g].size(); ++i)
      if (states[g][i].exists) groups_[g].params[i].lerp_(states[g][i].slots[0], weight);
  }
  train_mode_ = to_train;
}

void ScheduleFree::train() {
  if (!train_mode_) move_params(/*to_train=*/true);
}

void ScheduleFree::eval() {
  if (train_mode_) move_params(/*to_train=*/false);
}

void ScheduleFree::begin_step() {
  if (!train_mode_)
    throw Error("G-OPTIM-4", ErrorKind::training, name() + " cannot step in eval mode",
                "Call train() on the optimizer before training continues, eval() before evaluating "
                "or saving.");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& o = options_[g];
    auto& p = progress_[g];
    const auto step = double(p.k + 1);
    double factor = double(p.k) < o.warmup_steps ? step / o.warmup_steps : 1.0;
    p.normalise = kind_ != ScheduleFreeKind::sgd;
    p.bias_correction2 = 1 - std::pow(o.betas[1], step);
    if (kind_ == ScheduleFreeKind::radam) {
      const auto rectified = rectified_adam(o.betas[1], p.k + 1, o.silent_sgd_phase);
      factor = rectified.factor;
      p.normalise = rectified.normalise;
    }
    p.scheduled_lr = groups_[g].lr * factor;
    p.lr_max = std::max(p.scheduled_lr, p.lr_max);
    const double weight = std::pow(step, o.r) * std::pow(p.lr_max, o.weight_lr_power);
    p.weight_sum += weight;
    p.weight = p.weight_sum != 0 ? weight / p.weight_sum : 0.0;
    ++p.k;
  }
}

void ScheduleFree::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto& p = progress_[bucket.group];
  const auto& y = bucket.params;
  const auto& z = bucket.slots[0];
  const auto& grads = bucket.grads;  // normalised in place
  if (kind_ != ScheduleFreeKind::sgd) {
    const auto& second = bucket.slots[1];
    at::_foreach_mul_(second, o.betas[1]);
    at::_foreach_addcmul_(second, grads, grads, 1 - o.betas[1]);
    if (p.normalise) {
      auto denominator = at::_foreach_div(second, p.bias_correction2);
      at::_foreach_sqrt_(denominator);
      at::_foreach_add_(denominator, o.eps);
      at::_foreach_div_(grads, denominator);
    }
  }
  if (group.weight_decay != 0) at::_foreach_add_(grads, y, group.weight_decay);
  at::_foreach_lerp_(y, z, p.weight);
  at::_foreach_add_(y, grads, p.scheduled_lr * (interpolation(bucket.group) * (1 - p.weight) - 1));
  at::_foreach_sub_(z, grads, p.scheduled_lr);
}

std::vector<torch::Tensor> ScheduleFree::make_slots(const torch::Tensor& param, size_t) const {
  return {param.detach().clone(),
          kind_ == ScheduleFreeKind::sgd ? torch::Tensor() : zeros_like_param(param)};
}

StateTree ScheduleFree::group_options(size_t group) const {
  const auto& o = options_[group];
  const auto& p = progress_[group];
  auto options = StateTree::dict().set("lr", groups_[group].lr);
  if (kind_ == ScheduleFreeKind::sgd) {
    options.set("momentum", o.momentum);
  } else {
    options.set("betas", saved::tuple_of(o.betas)).set("eps", o.eps);
  }
  options.set("r", o.r).set("k", p.k);
  if (kind_ != ScheduleFreeKind::radam)
    options.set("warmup_steps", o.warmup_steps == std::floor(o.warmup_steps)
                                    ? StateTree(int64_t(o.warmup_steps))
                                    : StateTree(o.warmup_steps));
  options.set("train_mode", train_mode_)
      .set("weight_sum", p.weight_sum)
      .set("lr_max", p.lr_max)
      .set("scheduled_lr", p.scheduled_lr);
  options.set("weight_lr_power", o.weight_lr_power).set("foreach", true);
  if (kind_ == ScheduleFreeKind::radam) options.set("silent_sgd_phase", o.silent_sgd_phase);
  return options;
}

void ScheduleFree::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  auto& p = progress_[group];
  saved::take(saved, "momentum", o.momentum);
  saved::take(saved, "betas", o.betas);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "r", o.r);
  saved::take(saved, "k", p.k);
  saved::take(saved, "warmup_steps", o.warmup_steps);
  saved::take(saved, "train_mode", train_mode_);
  saved::take(saved, "weight_sum", p.weight_sum);
  saved::take(saved, "lr_max", p.lr_max);
  saved::take(saved, "scheduled_lr", p.scheduled_lr);
  saved::take(saved, "weight_lr_power", o.weight_lr_power);
  saved::take(saved, "silent_sgd_phase", o.silent_sgd_phase);
}

}  // namespace gradus
