#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/grokadamw.h>

#include <cmath>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {

std::shared_ptr<Optimizer> GrokAdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                     const OptimizerArguments& args,
                                                     const OptimArgs& extra) {
  GrokAdamWOptions o{.lr = args.learning_rate, .weight_decay = args.weight_decay};
  extra.read("alpha_init", o.alpha_init);
  extra.read("lamb", o.lamb);
  extra.read("gamma", o.gamma);
  extra.read("grokking_signal_decay_rate", o.grokking_signal_decay_rate);
  extra.read("gradient_clipping", o.gradient_clipping);
  return std::make_shared<GrokAdamW>(std::move(groups), o);
}

GrokAdamW::GrokAdamW(std::vector<torch::Tensor> params, GrokAdamWOptions options)
    : GrokAdamW(one_group(std::move(params)), options) {}

GrokAdamW::GrokAdamW(std::vector<ParamGroupInit> groups, GrokAdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges({options.betas[0], options.betas[1]});
  if (!(options.alpha_init >= 0 && options.alpha_init <= 1))
    throw Error(
        "G-OPTIM-1", ErrorKind::usage,
        "grokadamw: alpha_init must lie in [0, 1], received " + std::to_string(options.alpha_init));
}

std::vector<int64_t> GrokAdamW::places(size_t group) const {
  const auto holders = gradient_holders();
  size_t first = 0;
  for (size_t g = 0; g < group; ++g) first += groups_[g].params.size();
  std::vector<int64_t> places;
  int64_t count = 0;
  for (size_t i = 0; i < groups_[group].params.size(); ++i) {
    places.push_back(count);
    if (holders[first + i].grad().defined()) ++count;
  }
  return places;
}

void GrokAdamW::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  const double correction1 = 1 - std::pow(o.betas[0], double(bucket.step)),
               correction2 = 1 - std::pow(o.betas[1], double(bucket.step));
  const double step_size = group.lr * std::sqrt(correction2) / correction1;
  const auto places = this->places(bucket.group);
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto& param = bucket.params[i];
    const auto& first = bucket.slots[0][i];
    const auto& second = bucket.slots[1][i];
    const auto& slow = bucket.slots[2][i];
    auto grad = bucket.grads[i];
    if (o.gradient_clipping > 0)
      grad = grad * (o.gradient_clipping / (grad.norm() + 1e-6)).clamp_max_(1.0);
    const double beta1 = o.betas[0] * std::pow(1 - o.gamma, double(places[bucket.index[i]]));
    slow.mul_(o.alpha_init).add_(grad, 1 - o.alpha_init);
    const auto sum = grad + slow * o.lamb;
    first.mul_(beta1).add_(sum, 1 - beta1);
    second.mul_(o.betas[1]).addcmul_(sum, sum, 1 - o.betas[1]);
    param.mul_(1 - group.lr * group.weight_decay);
    param.addcdiv_(first, second.sqrt().add_(o.eps), -step_size);
  }
}

std::vector<torch::Tensor> GrokAdamW::make_slots(const torch::Tensor& param, size_t) const {
  return {zeros_like_param(param), zeros_like_param(param), zeros_like_param(param)};
}

StateTree GrokAdamW::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(o.betas))
      .set("eps", o.eps)
      .set("alpha_init", o.alpha_init)
      .set("lamb", o.lamb)
      .set("gamma", o.gamma)
      .set("grokking_signal_fns", {})
      .set("grokking_signal_decay_rate", o.grokking_signal_decay_rate)
      .set("gradient_clipping", o.gradient_clipping);
}

void GrokAdamW::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "betas", o.betas);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "alpha_init", o.alpha_init);
  saved::take(saved, "lamb", o.lamb);
  saved::take(saved, "gamma", o.gamma);
  saved::take(saved, "grokking_signal_decay_rate", o.grokking_signal_decay_rate);
  saved::take(saved, "gradient_clipping", o.gradient_clipping);
}

}  // namespace gradus
