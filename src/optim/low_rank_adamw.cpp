#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/low_rank_adamw.h>

#include <cmath>

#include "optim/gradient_projector.h"
#include "optim/saved_options.h"
#include "optim/target_groups.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

enum LowRankSlot : size_t { kLowMean, kLowSquare, kScaledNorm, kLeftBasis, kRightBasis };

void check_choice(const std::string& what, const std::string& given, const std::string& one,
                  const std::string& other) {
  if (given != one && given != other)
    throw Error(
        "G-OPTIM-1", ErrorKind::usage,
        "apollo_adamw: " + what + " must be " + one + " or " + other + ", received " + given);
}

}  // namespace

std::shared_ptr<Optimizer> LowRankAdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                        const OptimizerArguments& args,
                                                        const OptimArgs& extra) {
  LowRankAdamWOptions o{.lr = args.learning_rate};
  o.is_apollo = extra.optimizer().starts_with("apollo");
  o.is_layerwise = extra.optimizer().ends_with("layerwise");
  if (o.is_apollo) {
    o.betas = {args.adam_beta1, args.adam_beta2};
    o.eps = args.adam_epsilon;
    o.projection.scale = 1.0;
    if (auto proj = extra.text("proj")) o.proj = std::move(*proj);
    if (auto type = extra.text("scale_type")) o.scale_type = std::move(*type);
  }
  read_projection(extra, o.projection);
  return std::make_shared<LowRankAdamW>(groups, args.target_modules, o);
}

LowRankAdamW::LowRankAdamW(const std::vector<ParamGroupInit>& groups,
                           const std::optional<TargetModules>& targets, LowRankAdamWOptions options)
    : Optimizer(target_groups(groups, targets, options.is_apollo ? "apollo_adamw" : "galore_adamw"),
                options.lr, options.weight_decay),
      target_(std::move(options)) {
  check_ranges({target_.betas[0], target_.betas[1]});
  if (target_.is_apollo) {
    check_choice("proj", target_.proj, "random", "svd");
    check_choice("scale_type", target_.scale_type, "channel", "tensor");
  }
  make_projector();
}

void LowRankAdamW::make_projector() {
  using Source = GradientProjector::Source;
  const bool is_random = target_.is_apollo && target_.proj == "random";
  projector_ = std::make_unique<GradientProjector>(
      target_.projection, is_random ? Source::random : Source::svd, name());
}

LowRankAdamW::~LowRankAdamW() = default;

std::string LowRankAdamW::name() const {
  return std::string(target_.is_apollo ? "apollo_adamw" : "galore_adamw") +
         (target_.is_layerwise ? "_layerwise" : "");
}

// APOLLO numbers the parameters from 1. Its layer-wise form has an optimizer for each of them.
int64_t LowRankAdamW::seed_of(int64_t number) const {
  return target_.is_layerwise ? 1 : number + 1;
}

StateTree LowRankAdamW::state_dict() const {
  auto state = Optimizer::state_dict();
  if (!target_.is_apollo) return state;
  auto entries = StateTree::dict();
  for (const auto& [number, entry] : state.at("state").entries()) {
    auto with_seed = StateTree::dict().set("seed", seed_of(std::get<int64_t>(number)));
    for (const auto& [key, value] : entry.entries()) with_seed.set(key, value);
    entries.set(number, std::move(with_seed));
  }
  return state.set("state", std::move(entries));
}

torch::Tensor LowRankAdamW::projected(Bucket& bucket, size_t i) const {
  const auto left = slot_or_none(bucket.slots, kLeftBasis, i),
             right = slot_or_none(bucket.slots, kRightBasis, i);
  if (projector_->is_due(bucket.step)) {
    if (target_.is_apollo && target_.proj == "random")
      projector_->draw(seed_of(int64_t(groups_[0].params.size() + bucket.index[i])), bucket.step,
                       left, right);
    else
      projector_->fit(bucket.grads[i], left, right);
  }
  return project(bucket.grads[i], left, right);
}

// The gradient, as long as AdamW made the projected one; its norm grows by at most a hundredth from
// step to step.
torch::Tensor LowRankAdamW::scaled_as_projected(Bucket& bucket, size_t i, const torch::Tensor& low,
                                                const torch::Tensor& step) const {
  const auto& grad = bucket.grads[i];
  torch::Tensor factor;
  if (target_.scale_type == "channel") {
    const int64_t along = grad.size(0) < grad.size(1) ? 0 : 1;
    factor = step.norm(2, along) / (low.norm(2, along) + 1e-8);
    if (along == 1) factor = factor.unsqueeze(1);
  } else {
    factor = step.norm() / (low.norm() + 1e-8);
  }
  auto scaled = grad * factor;
  const auto& last_norm = bucket.slots[kScaledNorm][i];
  const auto norm = scaled.norm();
  if (bucket.step == 1) {
    last_norm.copy_(norm);
  } else {
    const auto limiter = (norm / (last_norm + 1e-8)).clamp_min_(1.01).div_(1.01);
    scaled.div_(limiter);
    last_norm.copy_(norm / limiter);
  }
  return scaled.mul_(std::sqrt(target_.projection.scale));
}

void LowRankAdamW::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const bool is_target = bucket.group == kTargetGroup;
  const LowRankAdamWOptions defaults;
  const auto& o = is_target ? target_ : defaults;
  const auto& [beta1, beta2] = o.betas;
  const double step_size = group.lr * std::sqrt(1 - std::pow(beta2, double(bucket.step))) /
                           (1 - std::pow(beta1, double(bucket.step)));
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto& param = bucket.params[i];
    const auto grad = is_target ? projected(bucket, i) : bucket.grads[i];
    const auto& first = bucket.slots[kLowMean][i];
    const auto& second = bucket.slots[kLowSquare][i];
    first.mul_(beta1).add_(grad, 1 - beta1);
    second.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
    auto step = first / second.sqrt().add_(o.eps);
    if (is_target && o.is_apollo)
      step = scaled_as_projected(bucket, i, grad, step);
    else if (is_target)
      step = project_back(step, slot_or_none(bucket.slots, kLeftBasis, i),
                          slot_or_none(bucket.slots, kRightBasis, i))
                 .mul_(o.projection.scale);
    param.add_(step, -step_size);
    if (group.weight_decay > 0) param.add_(param, -group.lr * group.weight_decay);
  }
}

std::vector<torch::Tensor> LowRankAdamW::make_slots(const torch::Tensor& param,
                                                    size_t group) const {
  std::vector<torch::Tensor> slots(5);
  if (group != kTargetGroup) {
    slots[kLowMean] = zeros_like_param(param);
    slots[kLowSquare] = zeros_like_param(param);
    return slots;
  }
  const auto plain = param.options().requires_grad(false);
  for (const size_t k : {kLowMean, kLowSquare})
    slots[k] = torch::zeros(projector_->projected_sizes(param.sizes()), plain);
  if (target_.is_apollo) slots[kScaledNorm] = torch::zeros({}, plain);
  std::tie(slots[kLeftBasis], slots[kRightBasis]) = projector_->make_bases(param);
  return slots;
}

StateTree LowRankAdamW::group_options(size_t group) const {
  const bool is_target = group == kTargetGroup;
  const LowRankAdamWOptions defaults;
  const auto& o = is_target ? target_ : defaults;
  auto options = StateTree::dict();
  if (is_target) {
    options.set("rank", o.projection.rank);
    if (o.is_apollo) options.set("proj", o.proj).set("scale_type", o.scale_type);
    set_projection(options, o.projection);
  }
  if (!o.is_apollo) options.set("lr", groups_[group].lr);
  options.set("betas", saved::tuple_of(o.betas)).set("eps", o.eps);
  if (o.is_apollo) options.set("lr", groups_[group].lr);
  return options.set("weight_decay", groups_[group].weight_decay).set("correct_bias", true);
}

void LowRankAdamW::load_group_options(size_t group, const StateTree& saved) {
  if (group != kTargetGroup) return;
  saved::take(saved, "betas", target_.betas);
  saved::take(saved, "eps", target_.eps);
  saved::take(saved, "scale_type", target_.scale_type);
  take_projection(saved, target_.projection);
  make_projector();
}

}  // namespace gradus
