#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/lion.h>

#include "optim/bitsandbytes_layout.h"
#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> Lion::from_arguments(std::vector<ParamGroupInit> groups,
                                                const OptimizerArguments& args, const OptimArgs&) {
  return std::make_shared<Lion>(std::move(groups),
                                LionOptions{.lr = args.learning_rate,
                                            .betas = {args.adam_beta1, args.adam_beta2},
                                            .weight_decay = args.weight_decay});
}

Lion::Lion(std::vector<torch::Tensor> params, LionOptions options)
    : Lion(one_group(std::move(params)), options) {}

Lion::Lion(std::vector<ParamGroupInit> groups, LionOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges({options.betas[0], options.betas[1]});
}

void Lion::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& [beta1, beta2] = options_[bucket.group].betas;
  const auto& momentum = bucket.slots[0];
  const auto params = in_working_precision(bucket.params);
  const auto grads = in_working_precision(bucket.grads);
  if (group.weight_decay > 0) at::_foreach_mul_(params, 1 - group.lr * group.weight_decay);
  auto update = at::_foreach_mul(momentum, beta1);
  at::_foreach_add_(update, grads, 1 - beta1);
  at::_foreach_sign_(update);
  at::_foreach_add_(params, update, -group.lr);
  at::_foreach_mul_(momentum, beta2);
  at::_foreach_add_(momentum, grads, 1 - beta2);
  write_back(params, bucket.params);
}

std::vector<torch::Tensor> Lion::make_slots(const torch::Tensor& param, size_t) const {
  return {zeros_like_param(param, working_type(param.scalar_type()))};
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

StateTree Lion::param_entry(const ParamState& state, size_t group) const {
  return bitsandbytes::nested(Optimizer::param_entry(state, group));
}

Optimizer::ParamState Lion::read_param_entry(const StateTree& entry, const torch::Tensor& param,
                                             size_t group, const std::string& what) const {
  return Optimizer::read_param_entry(bitsandbytes::flat(entry), param, group, what);
}

}  // namespace gradus
