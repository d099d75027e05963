#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_fused_sgd.h>
#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/sgd.h>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> SGD::from_arguments(std::vector<ParamGroupInit> groups,
                                               const OptimizerArguments& args,
                                               const OptimArgs& extra) {
  SGDOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("momentum", o.momentum);
  extra.read("dampening", o.dampening);
  extra.read("weight_decay", o.weight_decay);
  extra.read("nesterov", o.nesterov);
  return std::make_shared<SGD>(std::move(groups), o);
}

SGD::SGD(std::vector<torch::Tensor> params, SGDOptions options)
    : SGD(one_group(std::move(params)), options) {}

SGD::SGD(std::vector<ParamGroupInit> groups, SGDOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges();
  if (!(options.momentum >= 0))
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "sgd: momentum must be at least 0, received " + std::to_string(options.momentum));
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0))
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "sgd: nesterov needs a momentum above 0 and a dampening of 0, received momentum=" +
                    std::to_string(options.momentum) +
                    ", dampening=" + std::to_string(options.dampening),
                "Add momentum, for example --optim_args momentum=0.9,nesterov=true.");
}

void SGD::update(Bucket& bucket, const StepContext& context) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  if (bucket.params.front().is_cpu() && !context.grad_scale && !context.found_inf)
    return update_in_steps(bucket);
  at::_fused_sgd_(bucket.params, bucket.grads, bucket.slots[0], group.weight_decay, o.momentum,
                  group.lr, o.dampening, o.nesterov, o.maximize,
                  /*is_first_step=*/bucket.step == 1 && o.momentum != 0, context.grad_scale,
                  context.found_inf);
}

// The operations of Python's default on the CPU one after the other: the same rounding, so the same
// bits.
void SGD::update_in_steps(Bucket& bucket) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  auto grads = o.maximize ? at::_foreach_neg(bucket.grads) : bucket.grads;
  if (group.weight_decay != 0) grads = at::_foreach_add(grads, bucket.params, group.weight_decay);
  if (o.momentum != 0) {
    auto& buffers = bucket.slots[0];
    if (bucket.step == 1) {
      at::_foreach_copy_(buffers, grads);
    } else {
      at::_foreach_mul_(buffers, o.momentum);
      at::_foreach_add_(buffers, grads, 1 - o.dampening);
    }
    grads = o.nesterov ? at::_foreach_add(grads, buffers, o.momentum) : buffers;
  }
  at::_foreach_add_(bucket.params, grads, -group.lr);
}

std::vector<torch::Tensor> SGD::make_slots(const torch::Tensor& param, size_t group) const {
  return {options_[group].momentum != 0 ? zeros_like_param(param) : torch::Tensor()};
}

StateTree SGD::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("momentum", o.momentum)
      .set("dampening", o.dampening)
      .set("nesterov", o.nesterov)
      .set("maximize", o.maximize)
      .set("foreach", {})
      .set("differentiable", false)
      .set("fused", {});
}

void SGD::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "momentum", o.momentum);
  saved::take(saved, "dampening", o.dampening);
  saved::take(saved, "nesterov", o.nesterov);
  saved::take(saved, "maximize", o.maximize);
}

// torch keeps no count; a buffer that exists means the first step is past.
Optimizer::ParamState SGD::read_param_entry(const StateTree& entry, const torch::Tensor& param,
                                            size_t group, const std::string& what) const {
  auto state = Optimizer::read_param_entry(entry, param, group, what);
  const auto* buffer = entry.find("momentum_buffer");
  state.step = buffer != nullptr && buffer->is_tensor() ? 1 : 0;
  return state;
}

}  // namespace gradus
