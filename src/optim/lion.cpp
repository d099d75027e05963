#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/lion.h>

#include "optim/saved_options.h"

namespace gradus {

std::shared_ptr<Optimizer> Lion::from_arguments(std::vector<ParamGroupInit> groups,
                                                const OptimizerArguments& args,
                                                const OptimArgs& extra) {
  return std::make_shared<Lion>(std::move(groups),
                                LionOptions{.lr = args.learning_rate,
                                            .betas = {args.adam_beta1, args.adam_beta2},
                                            .weight_decay = args.weight_decay,
                                            .states = BnbStates::named(extra.optimizer())});
}

Lion::Lion(std::vector<torch::Tensor> params, LionOptions options)
    : Lion(one_group(std::move(params)), options) {}

Lion::Lion(std::vector<ParamGroupInit> groups, LionOptions options)
    : BnbOptimizer(std::move(groups), options.lr, options.weight_decay, options.states, "lion"),
      options_(groups_.size(), options) {
  check_ranges({options.betas[0], options.betas[1]});
}

void Lion::apply(const Values& values, size_t group, int64_t) {
  const auto& [lr, weight_decay] = std::tie(groups_[group].lr, groups_[group].weight_decay);
  const auto& [beta1, beta2] = options_[group].betas;
  const auto& [params, grads, momentum] = std::tie(values.params, values.grads, values.state1);
  if (weight_decay > 0) at::_foreach_mul_(params, 1 - lr * weight_decay);
  auto update = at::_foreach_mul(momentum, beta1);
  if (values.is_quantised)
    at::_foreach_add_(update, at::_foreach_mul(grads, 1 - beta1));
  else
    at::_foreach_add_(update, grads, 1 - beta1);
  at::_foreach_sign_(update);
  at::_foreach_add_(params, update, -lr);
  at::_foreach_mul_(momentum, beta2);
  at::_foreach_add_(momentum, grads, 1 - beta2);
}

StateTree Lion::group_options(size_t group) const {
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(options_[group].betas))
      .set("eps", 0.0);
}

void Lion::load_group_options(size_t group, const StateTree& saved) {
  saved::take(saved, "betas", options_[group].betas);
}

}  // namespace gradus
