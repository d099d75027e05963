#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/stable_adamw.h>

#include <cmath>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

enum StableSlot : size_t { kStableFirst, kStableSecond, kEpsSquared, kKahan };

// Adam's bias correction moved into beta.
double debiased(double beta, int64_t step) {
  const double power = std::pow(beta, double(step));
  return (power - beta) / (power - 1);
}

}  // namespace

std::shared_ptr<Optimizer> StableAdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                       const OptimizerArguments& args,
                                                       const OptimArgs& extra) {
  StableAdamWOptions o{.lr = args.learning_rate,
                       .betas = {args.adam_beta1, args.adam_beta2},
                       .eps = args.adam_epsilon,
                       .weight_decay = args.weight_decay};
  extra.read("decouple_lr", o.decouple_lr);
  extra.read("max_lr", o.max_lr);
  extra.read("kahan_sum", o.kahan_sum);
  return std::make_shared<StableAdamW>(std::move(groups), o);
}

StableAdamW::StableAdamW(std::vector<torch::Tensor> params, StableAdamWOptions options)
    : StableAdamW(one_group(std::move(params)), options) {}

StableAdamW::StableAdamW(std::vector<ParamGroupInit> groups, StableAdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options),
      group_step_(groups_.size(), 0) {
  check_ranges({options.betas[0], options.betas[1]});
  if (options.max_lr && !(*options.max_lr >= 0))
    throw Error(
        "G-OPTIM-1", ErrorKind::usage,
        "stable_adamw: max_lr must be at least 0, received " + std::to_string(*options.max_lr));
  for (auto& o : options_)
    if (o.decouple_lr && !o.max_lr) o.max_lr = o.lr;
}

void StableAdamW::begin_step() {
  for (auto& step : group_step_) ++step;
}

void StableAdamW::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const double beta1 = debiased(o.betas[0], group_step_[bucket.group]),
               beta2 = debiased(o.betas[1], group_step_[bucket.group]);
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto& param = bucket.params[i];
    const auto& grad = bucket.grads[i];
    const auto& first = bucket.slots[kStableFirst][i];
    const auto& second = bucket.slots[kStableSecond][i];
    first.lerp_(grad, 1 - beta1);
    second.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
    // The rate, lowered where the gradient outgrows its second moment; it stays on the device.
    const auto rms =
        grad.square().div_(second.maximum(bucket.slots[kEpsSquared][i])).mean().sqrt_();
    const auto rate = rms.to(at::kDouble).clamp_min_(1.0).reciprocal_().mul_(group.lr);
    if (group.weight_decay != 0)
      param.mul_(1 - rate * (o.decouple_lr ? group.weight_decay / *o.max_lr : group.weight_decay));
    auto step = first.div(second.sqrt().add_(o.eps)).mul_(rate);
    if (bucket.slots[kKahan].empty()) {
      param.sub_(step);
    } else {
      const auto& compensation = bucket.slots[kKahan][i];
      compensation.sub_(step);
      const auto before = param.clone();
      param.add_(compensation);
      compensation.add_(before.sub_(param));
    }
  }
}

std::vector<torch::Tensor> StableAdamW::make_slots(const torch::Tensor& param, size_t group) const {
  const auto& o = options_[group];
  const bool half = working_type(param.scalar_type()) != param.scalar_type();
  const auto eps_squared = torch::full({}, o.eps * o.eps, param.options().requires_grad(false));
  return {zeros_like_param(param), zeros_like_param(param), eps_squared,
          half && o.kahan_sum.value_or(true) ? zeros_like_param(param) : torch::Tensor()};
}

StateTree StableAdamW::group_options(size_t group) const {
  const auto& o = options_[group];
  bool kahan = o.kahan_sum.value_or(false);
  for (const auto& state : current_states()[group])
    kahan = kahan || (state.exists && state.slots[kKahan].defined());
  auto options = StateTree::dict()
                     .set("lr", groups_[group].lr)
                     .set("beta1", o.betas[0])
                     .set("beta2", o.betas[1])
                     .set("eps", o.eps)
                     .set("decouple_lr", o.decouple_lr)
                     .set("max_lr", saved::or_none(o.max_lr))
                     .set("kahan_sum", kahan ? StateTree(true) : saved::or_none(o.kahan_sum))
                     .set("foreach", {})
                     .set("triton", group_step_[group] > 0 ? StateTree(false) : StateTree())
                     .set("gradient_release", false)
                     .set("setup", group_step_[group] > 0);
  if (group_step_[group] > 0)
    options.set("step", torch::tensor(int32_t(group_step_[group]), at::kInt));
  return options;
}

void StableAdamW::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "beta1", o.betas[0]);
  saved::take(saved, "beta2", o.betas[1]);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "decouple_lr", o.decouple_lr);
  saved::take(saved, "max_lr", o.max_lr);
  saved::take(saved, "kahan_sum", o.kahan_sum);
  group_step_[group] = 0;
  saved::take(saved, "step", group_step_[group]);
}

// optimi writes the compensation also where there is none.
StateTree StableAdamW::param_entry(const ParamState& state, size_t group) const {
  auto entry = Optimizer::param_entry(state, group);
  if (!state.slots[kKahan].defined()) entry.set("kahan_comp", {});
  return entry;
}

}  // namespace gradus
