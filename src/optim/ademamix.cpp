#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <gradus/optim/ademamix.h>
#include <gradus/optim/factory.h>

#include <cmath>

#include "optim/saved_options.h"

namespace gradus {
namespace {

double warmed_alpha(const AdEMAMixOptions& o, int64_t step) {
  return o.t_alpha.value_or(0) > 0 ? std::min(double(step) * o.alpha / double(*o.t_alpha), o.alpha)
                                   : o.alpha;
}

// Grows from beta1 to beta3 so that the half-life rises linearly.
double warmed_beta3(const AdEMAMixOptions& o, int64_t step) {
  if (o.t_beta3.value_or(0) <= 0) return o.betas[2];
  const double log1 = std::log(o.betas[0]), log3 = std::log(o.betas[2]);
  const double share = double(step) / double(*o.t_beta3);
  return std::min(std::exp(log1 * log3 / ((1 - share) * log3 + share * log1)), o.betas[2]);
}

std::vector<torch::Tensor> halves(const std::vector<torch::Tensor>& stacked, int64_t which) {
  std::vector<torch::Tensor> result;
  result.reserve(stacked.size());
  for (const auto& tensor : stacked) result.push_back(tensor.select(0, which));
  return result;
}

// transformers calls the plain form "ademamix".
BnbStates states_with_name(BnbStates states) {
  if (states.name.empty() && states.bits == 32 && !states.paged) states.name = "ademamix";
  return states;
}

void decay_and_add(const std::vector<torch::Tensor>& average,
                   const std::vector<torch::Tensor>& values, double beta) {
  at::_foreach_mul_(average, beta);
  at::_foreach_add_(average, values, 1 - beta);
}

}  // namespace

std::shared_ptr<Optimizer> AdEMAMix::from_arguments(std::vector<ParamGroupInit> groups,
                                                    const OptimizerArguments& args,
                                                    const OptimArgs& extra) {
  AdEMAMixOptions o{.lr = args.learning_rate,
                    .betas = {args.adam_beta1, args.adam_beta2, 0.9999},
                    .eps = args.adam_epsilon,
                    .weight_decay = args.weight_decay,
                    .states = BnbStates::named(extra.optimizer())};
  extra.read("beta1", o.betas[0]);
  extra.read("beta2", o.betas[1]);
  extra.read("beta3", o.betas[2]);
  extra.read("alpha", o.alpha);
  extra.read("eps", o.eps);
  extra.read("t_alpha", o.t_alpha);
  extra.read("t_beta3", o.t_beta3);
  return std::make_shared<AdEMAMix>(std::move(groups), o);
}

AdEMAMix::AdEMAMix(std::vector<torch::Tensor> params, AdEMAMixOptions options)
    : AdEMAMix(one_group(std::move(params)), options) {}

AdEMAMix::AdEMAMix(std::vector<ParamGroupInit> groups, AdEMAMixOptions options)
    : BnbOptimizer(std::move(groups), options.lr, options.weight_decay,
                   states_with_name(options.states), "ademamix"),
      options_(groups_.size(), options) {
  check_ranges({options.betas[0], options.betas[1], options.betas[2]});
}

void AdEMAMix::apply(const Values& values, size_t group, int64_t step) {
  const auto& [lr, weight_decay] = std::tie(groups_[group].lr, groups_[group].weight_decay);
  const auto& o = options_[group];
  const auto fast = halves(values.state1, 0), slow = halves(values.state1, 1);
  const auto& [params, grads, second] = std::tie(values.params, values.grads, values.state2);
  decay_and_add(fast, grads, o.betas[0]);
  decay_and_add(slow, grads, warmed_beta3(o, step));
  at::_foreach_mul_(second, o.betas[1]);
  at::_foreach_addcmul_(second, grads, grads, 1 - o.betas[1]);
  const double correction1 = 1 - std::pow(o.betas[0], double(step));
  const double correction2 = std::sqrt(1 - std::pow(o.betas[1], double(step)));
  if (weight_decay > 0) at::_foreach_mul_(params, 1 - lr * weight_decay);
  auto momentum = at::_foreach_div(fast, correction1);
  at::_foreach_add_(momentum, at::_foreach_mul(slow, warmed_alpha(o, step)));
  auto denominator = at::_foreach_sqrt(second);
  at::_foreach_div_(denominator, correction2);
  at::_foreach_add_(denominator, o.eps);
  at::_foreach_div_(momentum, denominator);
  at::_foreach_add_(params, momentum, -lr);
}

StateTree AdEMAMix::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(o.betas))
      .set("eps", o.eps)
      .set("alpha", o.alpha)
      .set("t_alpha", saved::or_none(o.t_alpha))
      .set("t_beta3", saved::or_none(o.t_beta3));
}

void AdEMAMix::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "betas", o.betas);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "alpha", o.alpha);
  saved::take(saved, "t_alpha", o.t_alpha);
  saved::take(saved, "t_beta3", o.t_beta3);
}

}  // namespace gradus
