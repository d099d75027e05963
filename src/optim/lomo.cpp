#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/lomo.h>

#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> Lomo::from_arguments(std::vector<ParamGroupInit> groups,
                                                const OptimizerArguments& args, const OptimArgs&) {
  return std::make_shared<Lomo>(std::move(groups), LomoOptions{.lr = args.learning_rate});
}

Lomo::Lomo(std::vector<torch::Tensor> params, LomoOptions options)
    : Lomo(one_group(std::move(params)), options) {}

Lomo::Lomo(std::vector<ParamGroupInit> groups, LomoOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay) {
  check_ranges();
}

void Lomo::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto params = in_working_precision(bucket.params);
  if (group.weight_decay > 0) at::_foreach_mul_(params, 1 - group.lr * group.weight_decay);
  at::_foreach_add_(params, in_working_precision(bucket.grads), -group.lr);
  write_back(params, bucket.params);
}

StateTree Lomo::group_options(size_t group) const {
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("clip_grad_norm", {})
      .set("clip_grad_value", {});
}

}  // namespace gradus
