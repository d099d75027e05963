#include <ATen/ops/scalar_tensor.h>
#include <gradus/core/error.h>
#include <gradus/optim/anyprecision_adamw.h>
#include <gradus/optim/factory.h>

#include <cmath>

#include "optim/saved_options.h"
#include "optim/stochastic_rounding.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 4> kStateTypes = {{
    {"float32", at::kFloat},
    {"bfloat16", at::kBFloat16},
    {"float16", at::kHalf},
    {"float64", at::kDouble},
}};

std::string type_name_of(at::ScalarType type) {
  for (const auto& [name, each] : kStateTypes)
    if (each == type) return std::string("torch.") + name;
  return "torch.float32";
}

// "bfloat16", or "torch.bfloat16" as files have it.
std::optional<at::ScalarType> state_type_named(std::string text) {
  if (text.starts_with("torch.")) text = text.substr(6);
  for (const auto& [name, type] : kStateTypes)
    if (text == name) return type;
  return std::nullopt;
}

void read_state_type(const OptimArgs& extra, const std::string& name, at::ScalarType& type) {
  const auto text = extra.text(name);
  if (!text) return;
  const auto found = state_type_named(*text);
  if (!found)
    throw Error("G-OPTIM-7", ErrorKind::usage,
                "optim_args of " + extra.optimizer() + ": '" + name +
                    "' must be float32, bfloat16, float16 or float64, received '" + *text + "'");
  type = *found;
}

// As Python multiplies. `mul_` with a number rounds the number to the tensor's type first, in which
// 0.999 is 1.
const torch::Tensor& scale_(const torch::Tensor& tensor, double factor) {
  tensor.mul_(at::scalar_tensor(factor, at::kDouble));
  return tensor;
}

// The seed of a parameter's random numbers in one step.
uint64_t rounding_seed(int64_t step, size_t group, size_t index) {
  return (uint64_t(step) << 32) ^ (uint64_t(group) << 24) ^ uint64_t(index);
}

// The states that are rounded by chance: a step computes with their values in float32.
bool is_rounded_by_chance(const torch::Tensor& state, const AnyPrecisionAdamWOptions& options) {
  return options.stochastic_rounding && state.scalar_type() == at::kBFloat16;
}

void take_state_type(const StateTree& saved, const char* key, at::ScalarType& type) {
  std::string text;
  saved::take(saved, key, text);
  type = state_type_named(text).value_or(type);
}

}  // namespace

std::shared_ptr<Optimizer> AnyPrecisionAdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                             const OptimizerArguments& args,
                                                             const OptimArgs& extra) {
  AnyPrecisionAdamWOptions o{.lr = args.learning_rate,
                             .betas = {args.adam_beta1, args.adam_beta2},
                             .eps = args.adam_epsilon,
                             .weight_decay = args.weight_decay};
  extra.read("use_kahan_summation", o.use_kahan_summation);
  extra.read("stochastic_rounding", o.stochastic_rounding);
  read_state_type(extra, "momentum_dtype", o.momentum_dtype);
  read_state_type(extra, "variance_dtype", o.variance_dtype);
  read_state_type(extra, "compensation_buffer_dtype", o.compensation_buffer_dtype);
  return std::make_shared<AnyPrecisionAdamW>(std::move(groups), o);
}

AnyPrecisionAdamW::AnyPrecisionAdamW(std::vector<torch::Tensor> params,
                                     AnyPrecisionAdamWOptions options)
    : AnyPrecisionAdamW(one_group(std::move(params)), options) {}

AnyPrecisionAdamW::AnyPrecisionAdamW(std::vector<ParamGroupInit> groups,
                                     AnyPrecisionAdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options) {
  check_ranges({options.betas[0], options.betas[1]});
}

void AnyPrecisionAdamW::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  // Python takes these from a float32 step count; it divides by multiplying with the inverse.
  const float correction1 = 1.0f - std::pow(float(o.betas[0]), float(bucket.step)),
              correction2 = std::sqrt(1.0f - std::pow(float(o.betas[1]), float(bucket.step)));
  const double step_size = 1.0f / correction1 * float(group.lr);
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto& param = bucket.params[i];
    const auto& grad = bucket.grads[i];
    const auto& first = bucket.slots[0][i];
    const auto& second = bucket.slots[1][i];
    if (group.weight_decay != 0) scale_(param, 1 - group.lr * group.weight_decay);
    const bool rounds_first = is_rounded_by_chance(first, o),
               rounds_second = is_rounded_by_chance(second, o);
    const auto mean = rounds_first ? first.to(at::kFloat) : first,
               square = rounds_second ? second.to(at::kFloat) : second;
    scale_(mean, o.betas[0]).add_(grad, 1 - o.betas[0]);
    scale_(square, o.betas[1]).addcmul_(grad, grad, 1 - o.betas[1]);
    if (rounds_first || rounds_second) {
      const auto seed = rounding_seed(bucket.step, bucket.group, bucket.index[i]);
      const auto bits = scattered_bits(mean.numel(), seed, mean.device()).view(mean.sizes());
      if (rounds_first) first.copy_(rounded_by_chance(mean, bits.bitwise_and(0xFFFF)));
      if (rounds_second) second.copy_(rounded_by_chance(square, bits.bitwise_right_shift(16)));
    }
    const auto denominator = square.sqrt().div_(correction2).add_(o.eps);
    if (bucket.slots[2].empty()) {
      param.addcdiv_(mean, denominator, -step_size);
      continue;
    }
    const auto& compensation = bucket.slots[2][i];
    compensation.addcdiv_(mean, denominator, -step_size);
    const auto before = param.clone();
    param.add_(compensation);
    compensation.add_(before.sub_(param));
  }
}

std::vector<torch::Tensor> AnyPrecisionAdamW::make_slots(const torch::Tensor& param,
                                                         size_t group) const {
  const auto& o = options_[group];
  return {zeros_like_param(param, o.momentum_dtype), zeros_like_param(param, o.variance_dtype),
          o.use_kahan_summation ? zeros_like_param(param, o.compensation_buffer_dtype)
                                : torch::Tensor()};
}

StateTree AnyPrecisionAdamW::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", groups_[group].lr)
      .set("betas", saved::tuple_of(o.betas))
      .set("eps", o.eps)
      .set("use_kahan_summation", int64_t(o.use_kahan_summation))
      .set("momentum_dtype", type_name_of(o.momentum_dtype))
      .set("variance_dtype", type_name_of(o.variance_dtype))
      .set("compensation_buffer_dtype", type_name_of(o.compensation_buffer_dtype))
      .set("stochastic_rounding", o.stochastic_rounding);  // not in torchdistx' files
}

void AnyPrecisionAdamW::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "betas", o.betas);
  saved::take(saved, "eps", o.eps);
  saved::take(saved, "use_kahan_summation", o.use_kahan_summation);
  saved::take(saved, "stochastic_rounding", o.stochastic_rounding);
  take_state_type(saved, "momentum_dtype", o.momentum_dtype);
  take_state_type(saved, "variance_dtype", o.variance_dtype);
  take_state_type(saved, "compensation_buffer_dtype", o.compensation_buffer_dtype);
}

}  // namespace gradus
