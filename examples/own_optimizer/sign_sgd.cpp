#include "sign_sgd.h"

SignSGD::SignSGD(std::vector<gradus::ParamGroupInit> groups, SignSGDOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      momentum_(groups_.size(), options.momentum) {
  check_ranges({options.momentum});
}

gradus::OptimizerEntry SignSGD::entry() {
  return {.name = "sign_sgd",
          .make =
              [](std::vector<gradus::ParamGroupInit> groups, const gradus::OptimizerArguments& args,
                 const gradus::OptimArgs& extra) {
                SignSGDOptions options{.lr = args.learning_rate, .weight_decay = args.weight_decay};
                extra.read("momentum", options.momentum);
                return std::make_shared<SignSGD>(std::move(groups), options);
              },
          .optim_args = {"momentum"}};
}

void SignSGD::update(Bucket& bucket, const gradus::StepContext&) {
  const auto& group = groups_[bucket.group];
  const double momentum = momentum_[bucket.group];
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    auto& mean = bucket.slots[0][i];
    mean.mul_(momentum).add_(bucket.grads[i], 1 - momentum);
    bucket.params[i].mul_(1 - group.lr * group.weight_decay).sub_(mean.sign(), group.lr);
  }
}

std::vector<torch::Tensor> SignSGD::make_slots(const torch::Tensor& param, size_t) const {
  return {torch::zeros_like(param)};
}

// What a checkpoint keeps of a group's settings.
gradus::StateTree SignSGD::group_options(size_t group) const {
  return gradus::StateTree::dict().set("lr", groups_[group].lr).set("momentum", momentum_[group]);
}

void SignSGD::load_group_options(size_t group, const gradus::StateTree& saved) {
  if (const auto* value = saved.find("momentum")) momentum_[group] = value->as_double();
}
