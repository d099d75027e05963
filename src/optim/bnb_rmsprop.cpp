#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <gradus/optim/bnb_rmsprop.h>
#include <gradus/optim/factory.h>

#include "optim/saved_options.h"

namespace gradus {

std::shared_ptr<Optimizer> BnbRMSprop::from_arguments(std::vector<ParamGroupInit> groups,
                                                      const OptimizerArguments& args,
                                                      const OptimArgs& extra) {
  BnbRMSpropOptions o{.lr = args.learning_rate,
                      .weight_decay = args.weight_decay,
                      .states = BnbStates::named(extra.optimizer())};
  extra.read("alpha", o.alpha);
  extra.read("momentum", o.momentum);
  extra.read("eps", o.eps);
  return std::make_shared<BnbRMSprop>(std::move(groups), o);
}

BnbRMSprop::BnbRMSprop(std::vector<torch::Tensor> params, BnbRMSpropOptions options)
    : BnbRMSprop(one_group(std::move(params)), options) {}

BnbRMSprop::BnbRMSprop(std::vector<ParamGroupInit> groups, BnbRMSpropOptions options)
    : BnbOptimizer(std::move(groups), options.lr, options.weight_decay, options.states,
                   "rmsprop_bnb"),
      options_(groups_.size(), options) {
  check_ranges({options.alpha, options.momentum});
}

void BnbRMSprop::apply(const Values& values, size_t group, int64_t) {
  const auto& [lr, weight_decay] = std::tie(groups_[group].lr, groups_[group].weight_decay);
  const auto& o = options_[group];
  const auto& [params, squares] = std::tie(values.params, values.state1);
  const auto grads =
      weight_decay > 0 ? at::_foreach_add(values.grads, params, weight_decay) : values.grads;
  at::_foreach_mul_(squares, o.alpha);
  at::_foreach_addcmul_(squares, grads, grads, 1 - o.alpha);
  auto denominator = at::_foreach_sqrt(squares);
  at::_foreach_add_(denominator, o.eps);
  if (values.is_quantised)
    at::_foreach_addcdiv_(params, grads, denominator, -lr);
  else
    at::_foreach_add_(params, at::_foreach_div(grads, denominator), -lr);
}

StateTree BnbRMSprop::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(std::array{o.alpha, o.momentum}))
      .set("eps", o.eps);
}

void BnbRMSprop::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  std::array betas = {o.alpha, o.momentum};
  saved::take(saved, "betas", betas);
  o.alpha = betas[0];
  o.momentum = betas[1];
  saved::take(saved, "eps", o.eps);
}

}  // namespace gradus
