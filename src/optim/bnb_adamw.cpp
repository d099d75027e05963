#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <gradus/optim/bnb_adamw.h>
#include <gradus/optim/factory.h>

#include <cmath>

#include "optim/saved_options.h"

namespace gradus {

std::shared_ptr<Optimizer> BnbAdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                    const OptimizerArguments& args,
                                                    const OptimArgs& extra) {
  return std::make_shared<BnbAdamW>(std::move(groups),
                                    BnbAdamWOptions{.lr = args.learning_rate,
                                                    .betas = {args.adam_beta1, args.adam_beta2},
                                                    .eps = args.adam_epsilon,
                                                    .weight_decay = args.weight_decay,
                                                    .states = BnbStates::named(extra.optimizer())});
}

BnbAdamW::BnbAdamW(std::vector<torch::Tensor> params, BnbAdamWOptions options)
    : BnbAdamW(one_group(std::move(params)), options) {}

BnbAdamW::BnbAdamW(std::vector<ParamGroupInit> groups, BnbAdamWOptions options)
    : BnbOptimizer(std::move(groups), options.lr, options.weight_decay, options.states, "adamw"),
      options_(groups_.size(), options) {
  check_ranges({options.betas[0], options.betas[1]});
}

void BnbAdamW::apply(const Values& values, size_t group, int64_t step) {
  const auto& [lr, weight_decay] = std::tie(groups_[group].lr, groups_[group].weight_decay);
  const auto& o = options_[group];
  const auto& [params, grads, first, second] =
      std::tie(values.params, values.grads, values.state1, values.state2);
  at::_foreach_mul_(first, o.betas[0]);
  at::_foreach_add_(first, grads, 1 - o.betas[0]);
  at::_foreach_mul_(second, o.betas[1]);
  at::_foreach_addcmul_(second, grads, grads, 1 - o.betas[1]);
  const double correction1 = 1 - std::pow(o.betas[0], double(step));
  const double correction2 = std::sqrt(1 - std::pow(o.betas[1], double(step)));
  if (weight_decay > 0) at::_foreach_mul_(params, 1 - lr * weight_decay);
  auto denominator = at::_foreach_sqrt(second);
  if (values.is_quantised) {
    at::_foreach_div_(denominator, correction2);
    at::_foreach_add_(denominator, o.eps);
    at::_foreach_addcdiv_(params, first, denominator, -lr / correction1);
  } else {
    at::_foreach_add_(denominator, o.eps * correction2);
    const auto update = at::_foreach_div(first, denominator);
    at::_foreach_add_(params, update, -lr * correction2 / correction1);
  }
}

StateTree BnbAdamW::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(o.betas))
      .set("eps", o.eps)
      .set("alpha", 0.0)
      .set("t_alpha", {})
      .set("t_beta3", {});
}

void BnbAdamW::load_group_options(size_t group, const StateTree& saved) {
  saved::take(saved, "betas", options_[group].betas);
  saved::take(saved, "eps", options_[group].eps);
}

}  // namespace gradus
