#include <gradus/core/error.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/factory.h>

#include <cmath>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

enum AdafactorSlot : size_t { kFirst, kRow, kColumn, kWholeSquare, kRms };

torch::Tensor root_mean_square(const torch::Tensor& tensor) {
  return tensor.norm() / std::sqrt(double(tensor.numel()));
}

torch::Tensor factored_rsqrt(const torch::Tensor& row, const torch::Tensor& column) {
  return (row / row.mean(-1, /*keepdim=*/true))
      .rsqrt_()
      .unsqueeze(-1)
      .mul(column.unsqueeze(-2).rsqrt());
}

}  // namespace

// transformers fixes scale_parameter and relative_step to false; optim_args may turn them on here.
std::shared_ptr<Optimizer> Adafactor::from_arguments(std::vector<ParamGroupInit> groups,
                                                     const OptimizerArguments& args,
                                                     const OptimArgs& extra) {
  AdafactorOptions o{
      .weight_decay = args.weight_decay, .scale_parameter = false, .relative_step = false};
  extra.read("scale_parameter", o.scale_parameter);
  extra.read("relative_step", o.relative_step);
  extra.read("warmup_init", o.warmup_init);
  extra.read("clip_threshold", o.clip_threshold);
  extra.read("decay_rate", o.decay_rate);
  extra.read("beta1", o.beta1);
  if (!o.relative_step) o.lr = args.learning_rate;
  return std::make_shared<Adafactor>(std::move(groups), o);
}

Adafactor::Adafactor(std::vector<torch::Tensor> params, AdafactorOptions options)
    : Adafactor(one_group(std::move(params)), options) {}

Adafactor::Adafactor(std::vector<ParamGroupInit> groups, AdafactorOptions options)
    : Optimizer(std::move(groups), options.lr.value_or(0.0), options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges();
  if (options.lr && options.relative_step)
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "adafactor: a learning rate (" + std::to_string(*options.lr) +
                    ") and relative_step cannot be combined",
                "Set relative_step=false to use the rate, or leave the rate unset.");
  if (!options.lr && !options.relative_step)
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "adafactor: without relative_step a learning rate is needed, none was given");
  if (options.warmup_init && !options.relative_step)
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "adafactor: warmup_init needs relative_step=true, received false");
}

double Adafactor::base_rate(const AdafactorOptions& options, const ParamGroup& group,
                            int64_t step) const {
  if (!options.relative_step) return group.lr;
  const double highest = options.warmup_init ? 1e-6 * double(step) : 1e-2;
  return std::min(highest, 1.0 / std::sqrt(double(step)));
}

void Adafactor::update(Bucket& bucket, const StepContext&) {
  for (size_t i = 0; i < bucket.params.size(); ++i)
    update_one(options_[bucket.group], groups_[bucket.group], bucket, i);
}

void Adafactor::update_one(const AdafactorOptions& o, const ParamGroup& group, Bucket& bucket,
                           size_t i) {
  const auto type = working_type(bucket.params[i].scalar_type());
  const auto param = bucket.params[i].to(type);
  const auto grad = in_state_space(bucket, i, bucket.grads[i].to(type));
  auto& slots = bucket.slots;
  auto& rms = slots[kRms][i];
  rms.copy_(root_mean_square(param));

  const double beta2 = 1.0 - std::pow(double(bucket.step), o.decay_rate);
  auto update = grad.square().add_(o.eps[0]);
  if (grad.dim() >= 2) {
    slots[kRow][i].mul_(beta2).add_(update.mean(-1), 1.0 - beta2);
    slots[kColumn][i].mul_(beta2).add_(update.mean(-2), 1.0 - beta2);
    update = factored_rsqrt(slots[kRow][i], slots[kColumn][i]).mul_(grad);
  } else {
    slots[kWholeSquare][i].mul_(beta2).add_(update, 1.0 - beta2);
    update = slots[kWholeSquare][i].rsqrt().mul_(grad);
  }
  update.div_((root_mean_square(update) / o.clip_threshold).clamp_min_(1.0));

  const double rate = base_rate(o, group, bucket.step);
  // The parameter's scale stays on the device: a tensor factor in place of a number.
  const auto scale = o.scale_parameter ? rms.clamp_min(o.eps[1]).mul_(rate) : torch::Tensor();
  o.scale_parameter ? update.mul_(scale) : update.mul_(rate);
  if (o.beta1) update = slots[kFirst][i].mul_(*o.beta1).add_(update, 1.0 - *o.beta1);
  update = in_parameter_space(bucket, i, update);
  if (group.weight_decay != 0)
    o.scale_parameter ? param.sub_(param * (scale * group.weight_decay))
                      : param.add_(param, -group.weight_decay * rate);
  param.sub_(update);
  if (!param.is_same(bucket.params[i])) bucket.params[i].copy_(param);
}

std::vector<torch::Tensor> Adafactor::make_slots(const torch::Tensor& param, size_t group) const {
  const auto type = working_type(param.scalar_type());
  const auto options = param.options().dtype(type).requires_grad(false);
  std::vector<torch::Tensor> slots(5);
  if (options_[group].beta1) slots[kFirst] = zeros_like_param(param, type);
  if (param.dim() >= 2) {
    auto row = param.sizes().vec(), column = row;
    row.pop_back();
    column.erase(column.end() - 2);
    slots[kRow] = torch::zeros(row, options);
    slots[kColumn] = torch::zeros(column, options);
  } else {
    slots[kWholeSquare] = zeros_like_param(param, type);
  }
  slots[kRms] = torch::zeros({}, options);
  return slots;
}

std::optional<double> Adafactor::current_lr(size_t group) const {
  const auto& o = options_.at(group);
  for (const auto& state : current_states()[group]) {
    if (!state.exists || state.step == 0) continue;
    const double scale =
        o.scale_parameter ? std::max(o.eps[1], state.slots[kRms].item().toDouble()) : 1.0;
    return scale * base_rate(o, groups_[group], state.step);
  }
  return std::nullopt;
}

StateTree Adafactor::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", o.relative_step ? StateTree() : StateTree(groups_[group].lr))
      .set("eps", saved::tuple_of(o.eps))
      .set("clip_threshold", o.clip_threshold)
      .set("decay_rate", o.decay_rate)
      .set("beta1", saved::or_none(o.beta1))
      .set("scale_parameter", o.scale_parameter)
      .set("relative_step", o.relative_step)
      .set("warmup_init", o.warmup_init);
}

void Adafactor::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "clip_threshold", o.clip_threshold);
  saved::take(saved, "decay_rate", o.decay_rate);
  saved::take(saved, "beta1", o.beta1);
  saved::take(saved, "scale_parameter", o.scale_parameter);
  saved::take(saved, "relative_step", o.relative_step);
  saved::take(saved, "warmup_init", o.warmup_init);
}

AdafactorSchedule::AdafactorSchedule(Adafactor& optimizer, double initial_lr)
    : optimizer_(optimizer), initial_lr_(initial_lr) {}

void AdafactorSchedule::step() { ++last_epoch_; }

std::vector<double> AdafactorSchedule::last_lr() const {
  std::vector<double> rates;
  const size_t count = optimizer_.param_groups().size();
  for (size_t g = 0; g < count; ++g)
    if (const auto rate = optimizer_.current_lr(g)) rates.push_back(*rate);
  return rates.empty() ? std::vector<double>(count, initial_lr_) : rates;
}

StateTree AdafactorSchedule::state_dict() const {
  const size_t count = optimizer_.param_groups().size();
  return StateTree::dict()
      .set("base_lrs", saved::list_of(std::vector<double>(count, initial_lr_)))
      .set("last_epoch", last_epoch_)
      .set("_step_count", last_epoch_ + 1)
      .set("_is_initial", false)
      .set("_get_lr_called_within_step", false)
      .set("_last_lr", saved::list_of(last_lr()))
      .set("lr_lambdas", saved::list_of(std::vector<StateTree>(count)));
}

void AdafactorSchedule::load_state_dict(const StateTree& state) {
  saved::take(state, "last_epoch", last_epoch_);
}

}  // namespace gradus
