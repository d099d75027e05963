#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/optimizer_kernels.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/factory.h>

#include <cmath>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> AdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                 const OptimizerArguments& args,
                                                 const OptimArgs& extra) {
  return std::make_shared<AdamW>(std::move(groups),
                                 AdamWOptions{.lr = args.learning_rate,
                                              .betas = {args.adam_beta1, args.adam_beta2},
                                              .eps = args.adam_epsilon,
                                              .weight_decay = args.weight_decay,
                                              .fused = extra.optimizer() == "adamw_torch_fused",
                                              .name = extra.optimizer()});
}

AdamW::AdamW(std::vector<torch::Tensor> params, AdamWOptions options)
    : AdamW(one_group(std::move(params)), options) {}

AdamW::AdamW(std::vector<ParamGroupInit> groups, AdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options),
      fused_(options.fused),
      name_(!options.name.empty() ? options.name
            : options.fused       ? "adamw_torch_fused"
                                  : "adamw_torch") {
  check_ranges({options.betas[0], options.betas[1]});
}

bool AdamW::updates_weights() const {
  if (!kernels::have_cuda_kernels()) return false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (options_[g].amsgrad) return false;
    for (const auto& param : groups_[g].params)
      if (!param.is_cuda() || param.scalar_type() != at::kFloat) return false;
  }
  return true;
}

bool AdamW::steps_apart() const {
  if (fused_) return false;
  for (const auto& group : groups_)
    for (const auto& param : group.params)
      if (!param.is_cpu()) return false;
  return true;
}

void AdamW::update(Bucket& bucket, const StepContext& context) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto& slots = bucket.slots;
  advance_step_tensor(bucket);
  if (steps_apart()) return update_in_steps(bucket);
  const auto device_lr =
      context.lr ? std::optional(context.lr->select(0, int64_t(bucket.group))) : std::nullopt;
  if (updates_weights()) {
    const auto lr = device_lr ? *device_lr : at::full({}, group.lr, bucket.step_tensor.options());
    kernels::adamw_(
        {bucket.params, bucket.weights, bucket.grads, slots[0], slots[1]},
        {lr, bucket.step_tensor, context.clip_coef, context.grad_scale, context.found_inf},
        {o.betas[0], o.betas[1], o.eps, group.weight_decay, o.maximize});
  } else {
    const auto run = [&](const auto& lr) {
      at::_fused_adamw_(bucket.params, bucket.grads, slots[0], slots[1], slots[2], bucket.steps, lr,
                        o.betas[0], o.betas[1], group.weight_decay, o.eps, o.amsgrad, o.maximize,
                        context.grad_scale, context.found_inf);
    };
    if (device_lr)
      run(*device_lr);
    else
      run(group.lr);
  }
  if (context.found_inf) bucket.step_tensor.sub_(context.found_inf->reshape({}));
}

// The operations of Python's `adamw_torch` on the CPU one after the other: the same rounding, so
// the same bits.
void AdamW::update_in_steps(Bucket& bucket) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto& [exp_avg, exp_avg_sq, max_exp_avg_sq] =
      std::tie(bucket.slots[0], bucket.slots[1], bucket.slots[2]);
  const auto grads = o.maximize ? at::_foreach_neg(bucket.grads) : bucket.grads;
  if (group.weight_decay != 0) at::_foreach_mul_(bucket.params, 1 - group.lr * group.weight_decay);
  at::_foreach_lerp_(exp_avg, grads, 1 - o.betas[0]);
  at::_foreach_mul_(exp_avg_sq, o.betas[1]);
  at::_foreach_addcmul_(exp_avg_sq, grads, grads, 1 - o.betas[1]);
  if (o.amsgrad) at::_foreach_maximum_(max_exp_avg_sq, exp_avg_sq);
  const double correction1 = 1 - std::pow(o.betas[0], bucket.step),
               correction2 = 1 - std::pow(o.betas[1], bucket.step);
  auto denominator = at::_foreach_sqrt(o.amsgrad ? max_exp_avg_sq : exp_avg_sq);
  at::_foreach_div_(denominator, std::sqrt(correction2));
  at::_foreach_add_(denominator, o.eps);
  at::_foreach_addcdiv_(bucket.params, exp_avg, denominator, -(group.lr / correction1));
}

std::vector<torch::Tensor> AdamW::make_slots(const torch::Tensor& param, size_t group) const {
  return {zeros_like_param(param), zeros_like_param(param),
          options_[group].amsgrad ? zeros_like_param(param) : torch::Tensor()};
}

StateTree AdamW::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(o.betas))
      .set("eps", o.eps)
      .set("amsgrad", o.amsgrad)
      .set("maximize", o.maximize)
      .set("foreach", {})
      .set("capturable", false)
      .set("differentiable", false)
      .set("fused", o.fused ? StateTree(true) : StateTree())
      .set("decoupled_weight_decay", true);
}

void AdamW::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "betas", o.betas);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "amsgrad", o.amsgrad);
  saved::take(saved, "maximize", o.maximize);
}

}  // namespace gradus
