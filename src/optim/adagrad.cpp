#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <gradus/optim/adagrad.h>
#include <gradus/optim/factory.h>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> Adagrad::from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra) {
  AdagradOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("lr_decay", o.lr_decay);
  extra.read("weight_decay", o.weight_decay);
  extra.read("eps", o.eps);
  return std::make_shared<Adagrad>(std::move(groups), o);
}

Adagrad::Adagrad(std::vector<torch::Tensor> params, AdagradOptions options)
    : Adagrad(one_group(std::move(params)), options) {}

Adagrad::Adagrad(std::vector<ParamGroupInit> groups, AdagradOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges();
}

void Adagrad::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto grads = group.weight_decay != 0
                         ? at::_foreach_add(bucket.grads, bucket.params, group.weight_decay)
                         : bucket.grads;
  at::_foreach_addcmul_(bucket.slots[0], grads, grads, 1);
  auto denominator = at::_foreach_sqrt(bucket.slots[0]);
  at::_foreach_add_(denominator, o.eps);
  at::_foreach_addcdiv_(bucket.params, grads, denominator,
                        -group.lr / (1 + double(bucket.step - 1) * o.lr_decay));
}

std::vector<torch::Tensor> Adagrad::make_slots(const torch::Tensor& param, size_t group) const {
  return {zeros_like_param(param).fill_(options_[group].initial_accumulator_value)};
}

StateTree Adagrad::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("lr_decay", o.lr_decay)
      .set("eps", o.eps)
      .set("initial_accumulator_value", o.initial_accumulator_value)
      .set("foreach", {})
      .set("maximize", false)
      .set("differentiable", false)
      .set("fused", {});
}

void Adagrad::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "lr_decay", o.lr_decay);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "initial_accumulator_value", o.initial_accumulator_value);
}

}  // namespace gradus
