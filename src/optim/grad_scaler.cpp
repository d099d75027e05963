#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <gradus/core/error.h>
#include <gradus/optim/grad_scaler.h>

#include <map>

#include "optim/saved_options.h"

namespace gradus {
namespace {

[[noreturn]] void wrong_order(const std::string& message) {
  throw Error("G-OPTIM-8", ErrorKind::training, "GradScaler: " + message,
              "The order of a step is scale(loss).backward(), unscale_, step, update; once each.");
}

// The kernel wants gradients of one device and type at a time.
std::map<std::pair<std::string, at::ScalarType>, std::vector<torch::Tensor>> gradients_by_kind(
    const Optimizer& optimizer) {
  std::map<std::pair<std::string, at::ScalarType>, std::vector<torch::Tensor>> kinds;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& param : group.params) {
      const auto& grad = param.grad();
      if (!grad.defined()) continue;
      if (grad.scalar_type() == at::kHalf)
        throw Error("G-OPTIM-8", ErrorKind::training,
                    "GradScaler: a gradient is float16; expected float32",
                    "Keep the parameters in float32 and let autocast choose float16 (fp16=true), "
                    "or train in bfloat16.");
      kinds[{grad.device().str(), grad.scalar_type()}].push_back(grad);
    }
  }
  return kinds;
}

}  // namespace

GradScaler::GradScaler(torch::Device device, GradScalerOptions options)
    : options_(options), device_(device) {
  if (!options_.enabled) return;
  if (!(options.growth_factor > 1.0) || !(options.backoff_factor < 1.0))
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "GradScaler: growth_factor must be above 1 and backoff_factor below 1, received " +
                    std::to_string(options.growth_factor) + " and " +
                    std::to_string(options.backoff_factor));
  scale_ =
      torch::full({}, options.init_scale, torch::TensorOptions().dtype(at::kFloat).device(device));
  growth_tracker_ = torch::zeros({}, torch::TensorOptions().dtype(at::kInt).device(device));
  found_inf_ = torch::zeros({}, torch::TensorOptions().dtype(at::kFloat).device(device));
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) {
  if (!options_.enabled) return loss;
  const auto scaled = loss * scale_.to(loss.device());
  return shares_ == 1 ? scaled : scaled / shares_;
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (stage_ == Stage::unscaled) wrong_order("unscale_ was called twice since the last update");
  if (stage_ == Stage::stepped) wrong_order("unscale_ was called after step");
  torch::NoGradGuard no_grad;
  found_inf_.zero_();
  auto inverse = scale_.to(at::kDouble).reciprocal_();
  if (shares_ != 1) inverse.mul_(shares_);
  inverse = inverse.to(at::kFloat);
  for (auto& [kind, grads] : gradients_by_kind(optimizer)) {
    if (grads[0].device() == device_) {
      at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf_, inverse);
    } else {
      auto found = torch::zeros({}, grads[0].options().dtype(at::kFloat));
      at::_amp_foreach_non_finite_check_and_unscale_(grads, found, inverse.to(grads[0].device()));
      found_inf_.add_(found.to(device_));
    }
  }
  stage_ = Stage::unscaled;
}

void GradScaler::step(Optimizer& optimizer, StepContext context) {
  if (!options_.enabled) return optimizer.step(context);
  if (stage_ == Stage::stepped) wrong_order("step was called twice since the last update");
  if (stage_ == Stage::ready) unscale_(optimizer);
  context.found_inf = found_inf_;
  optimizer.step(context);
  stage_ = Stage::stepped;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (stage_ == Stage::ready) wrong_order("update was called before step");
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  stage_ = Stage::ready;
}

bool GradScaler::step_was_skipped() const {
  return options_.enabled && found_inf_.item<float>() != 0;
}

double GradScaler::get_scale() const { return options_.enabled ? scale_.item<float>() : 1.0; }

void GradScaler::set_scale(double scale) {
  if (options_.enabled) scale_.fill_(scale);
}

StateTree GradScaler::state_dict() const {
  auto state = StateTree::dict();
  if (!options_.enabled) return state;
  return state.set("scale", get_scale())
      .set("growth_factor", options_.growth_factor)
      .set("backoff_factor", options_.backoff_factor)
      .set("growth_interval", options_.growth_interval)
      .set("_growth_tracker", int64_t{growth_tracker_.item<int>()});
}

void GradScaler::load_state_dict(const StateTree& state) {
  if (!options_.enabled) return;
  if (state.entries().empty())
    throw Error(
        "G-OPTIM-3", ErrorKind::checkpoint,
        "cannot load the gradient scaler's state: it is empty, it was saved by a disabled scaler",
        "Resume with the precision of the saved run.");
  scale_.fill_(state.at("scale").as_double());
  growth_tracker_.fill_(state.at("_growth_tracker").as_int());
  saved::take(state, "growth_factor", options_.growth_factor);
  saved::take(state, "backoff_factor", options_.backoff_factor);
  saved::take(state, "growth_interval", options_.growth_interval);
  stage_ = Stage::ready;
}

}  // namespace gradus
