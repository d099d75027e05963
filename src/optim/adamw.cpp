#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/optimizer_kernels.h>
#include <gradus/optim/adamw.h>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

AdamW::AdamW(std::vector<torch::Tensor> params, AdamWOptions options) : AdamW(one_group(std::move(params)), options) {}

AdamW::AdamW(std::vector<ParamGroupInit> groups, AdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay), options_(groups_.size(), options), fused_name_(options.fused) {
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

void AdamW::update(Bucket& bucket, const StepContext& context) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto& slots = bucket.slots;
  advance_step_tensor(bucket);
  const auto device_lr = context.lr ? std::optional(context.lr->select(0, int64_t(bucket.group))) : std::nullopt;
  if (updates_weights()) {
    const auto lr = device_lr ? *device_lr : at::full({}, group.lr, bucket.step_tensor.options());
    kernels::adamw_({bucket.params, bucket.weights, bucket.grads, slots[0], slots[1]}, {lr, bucket.step_tensor, context.clip_coef, context.grad_scale, context.found_inf},
                    {o.betas[0], o.betas[1], o.eps, group.weight_decay, o.maximize});
  } else {
    const auto run = [&](const auto& lr) {
      at::_fused_adamw_(bucket.params, bucket.grads, slots[0], slots[1], slots[2], bucket.steps, lr, o.betas[0], o.betas[1], group.weight_decay, o.eps,
                        o.amsgrad, o.maximize, context.grad_scale, context.found_inf);
    };
    if (device_lr) run(*device_lr);
    else run(group.lr);
  }
  if (context.found_inf) bucket.step_tensor.sub_(context.found_inf->reshape({}));
}

std::vector<torch::Tensor> AdamW::make_slots(const torch::Tensor& param, size_t group) const {
  return {zeros_like_param(param), zeros_like_param(param), options_[group].amsgrad ? zeros_like_param(param) : torch::Tensor()};
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
