#include <ATen/ops/_fused_adamw.h>
#include <gradus/optim/adamw.h>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

AdamW::AdamW(std::vector<torch::Tensor> params, AdamWOptions options) : AdamW(one_group(std::move(params)), options) {}

AdamW::AdamW(std::vector<ParamGroupInit> groups, AdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay), options_(groups_.size(), options), fused_name_(options.fused) {
  check_ranges({options.betas[0], options.betas[1]});
}

bool AdamW::make_capturable() {
  device_lr_.clear();
  for (const auto& group : groups_) {
    for (const auto& param : group.params)
      if (!param.is_cuda()) {
        device_lr_.clear();
        return false;
      }
    const auto device = group.params.empty() ? at::Device(at::kCPU) : group.params[0].device();
    device_lr_.push_back(torch::full({}, group.lr, torch::TensorOptions().dtype(at::kFloat).device(device)));
  }
  return true;
}

void AdamW::refresh_device_lr() {
  for (size_t g = 0; g < device_lr_.size(); ++g) device_lr_[g].fill_(groups_[g].lr);
}

void AdamW::update(Bucket& bucket, const StepContext& context) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const auto& slots = bucket.slots;
  advance_step_tensor(bucket);
  const auto run = [&](const auto& lr) {
    at::_fused_adamw_(bucket.params, bucket.grads, slots[0], slots[1], slots[2], bucket.steps, lr, o.betas[0], o.betas[1], group.weight_decay, o.eps,
                      o.amsgrad, o.maximize, context.grad_scale, context.found_inf);
  };
  if (device_lr_.empty()) {
    run(group.lr);
  } else {
    run(device_lr_[bucket.group]);
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
