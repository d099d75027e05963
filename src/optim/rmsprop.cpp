#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/rmsprop.h>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> RMSprop::from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra) {
  RMSpropOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("momentum", o.momentum);
  extra.read("alpha", o.alpha);
  extra.read("eps", o.eps);
  extra.read("weight_decay", o.weight_decay);
  extra.read("centered", o.centered);
  return std::make_shared<RMSprop>(std::move(groups), o);
}

RMSprop::RMSprop(std::vector<torch::Tensor> params, RMSpropOptions options)
    : RMSprop(one_group(std::move(params)), options) {}

RMSprop::RMSprop(std::vector<ParamGroupInit> groups, RMSpropOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges({options.alpha});
}

void RMSprop::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto& [square_avg, momentum, grad_avg] =
      std::tie(bucket.slots[0], bucket.slots[1], bucket.slots[2]);
  const auto grads = group.weight_decay != 0
                         ? at::_foreach_add(bucket.grads, bucket.params, group.weight_decay)
                         : bucket.grads;
  at::_foreach_mul_(square_avg, o.alpha);
  at::_foreach_addcmul_(square_avg, grads, grads, 1 - o.alpha);
  std::vector<torch::Tensor> denominator;
  if (o.centered) {
    at::_foreach_lerp_(grad_avg, grads, 1 - o.alpha);
    denominator = at::_foreach_addcmul(square_avg, grad_avg, grad_avg, -1);
    at::_foreach_sqrt_(denominator);
  } else {
    denominator = at::_foreach_sqrt(square_avg);
  }
  at::_foreach_add_(denominator, o.eps);
  if (o.momentum > 0) {
    at::_foreach_mul_(momentum, o.momentum);
    at::_foreach_addcdiv_(momentum, grads, denominator, 1);
    at::_foreach_add_(bucket.params, momentum, -group.lr);
  } else {
    at::_foreach_addcdiv_(bucket.params, grads, denominator, -group.lr);
  }
}

std::vector<torch::Tensor> RMSprop::make_slots(const torch::Tensor& param, size_t group) const {
  const auto& o = options_[group];
  return {zeros_like_param(param), o.momentum > 0 ? zeros_like_param(param) : torch::Tensor(),
          o.centered ? zeros_like_param(param) : torch::Tensor()};
}

StateTree RMSprop::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("momentum", o.momentum)
      .set("alpha", o.alpha)
      .set("eps", o.eps)
      .set("centered", o.centered)
      .set("capturable", false)
      .set("foreach", {})
      .set("maximize", false)
      .set("differentiable", false);
}

void RMSprop::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "momentum", o.momentum);
  saved::take(saved, "alpha", o.alpha);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "centered", o.centered);
}

}  // namespace gradus
