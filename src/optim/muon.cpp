#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/addmm.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/muon.h>

#include <algorithm>
#include <cmath>

#include "optim/saved_options.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

enum MuonSlot : size_t { kMomentum, kMuonFirst, kMuonSecond };

const std::vector<std::string> kAdjustments = {"original", "match_rms_adamw", "spectral_unclamped"};

bool is_hidden_matrix(const torch::Tensor& param, const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return param.dim() == 2 && !has("embed") && !has("wte") && !has("wpe") && !has("lm_head");
}

double adjusted_rate(double lr, const std::optional<std::string>& how, const torch::Tensor& param) {
  const auto rows = double(param.size(0)), columns = double(param.size(1));
  if (!how || *how == "original") return lr * std::sqrt(std::max(1.0, rows / columns));
  if (*how == "match_rms_adamw") return lr * 0.2 * std::sqrt(std::max(rows, columns));
  return lr * std::sqrt(rows / columns);
}

// A quintic Newton-Schulz iteration that pushes all singular values towards one.
torch::Tensor orthogonalised(const torch::Tensor& momentum, const MuonOptions& o) {
  const auto& [a, b, c] = o.ns_coefficients;
  const bool tall = momentum.size(0) > momentum.size(1);
  auto x = momentum.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (tall) x = x.t();
  x.div_(x.norm().clamp_min(o.eps));
  for (int64_t i = 0; i < o.ns_steps; ++i) {
    const auto gram = x.matmul(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

}  // namespace

std::shared_ptr<Optimizer> Muon::from_arguments(std::vector<ParamGroupInit> groups,
                                                const OptimizerArguments& args,
                                                const OptimArgs& extra) {
  MuonOptions o{.lr = args.learning_rate,
                .weight_decay = args.weight_decay,
                .adamw_betas = {args.adam_beta1, args.adam_beta2},
                .adamw_eps = args.adam_epsilon};
  extra.read("momentum", o.momentum);
  extra.read("nesterov", o.nesterov);
  extra.read("ns_steps", o.ns_steps);
  extra.read("eps", o.eps);
  extra.read("adamw_lr", o.adamw_lr);
  if (auto how = extra.text("adjust_lr_fn")) o.adjust_lr_fn = std::move(how);
  return std::make_shared<Muon>(std::move(groups), o);
}

Muon::Muon(std::vector<torch::Tensor> params, MuonOptions options)
    : Muon(one_group(std::move(params)), options) {}
Muon::Muon(std::vector<ParamGroupInit> groups, MuonOptions options)
    : Muon(split(std::move(groups), options), options) {}

Muon::Muon(Split split, MuonOptions options)
    : Optimizer(std::move(split.groups), options.lr, options.weight_decay),
      uses_muon_(std::move(split.uses_muon)),
      options_(groups_.size(), options) {
  check_ranges({options.momentum, options.adamw_betas[0], options.adamw_betas[1]});
  if (options.ns_steps < 1 || options.ns_steps >= 100)
    throw Error(
        "G-OPTIM-1", ErrorKind::usage,
        "muon: ns_steps must be from 1 to 99, received " + std::to_string(options.ns_steps));
  if (options.adjust_lr_fn && std::find(kAdjustments.begin(), kAdjustments.end(),
                                        *options.adjust_lr_fn) == kAdjustments.end())
    throw Error("G-OPTIM-1", ErrorKind::usage,
                "muon: adjust_lr_fn must be " + join_or(kAdjustments) + ", received '" +
                    *options.adjust_lr_fn + "'");
}

Muon::Split Muon::split(std::vector<ParamGroupInit> groups, const MuonOptions& options) {
  Split result;
  for (auto& group : groups) {
    ParamGroupInit matrices, rest;
    matrices.weight_decay = rest.weight_decay = group.weight_decay;
    matrices.lr = group.lr;
    rest.lr = group.lr ? group.lr : options.adamw_lr;
    for (size_t i = 0; i < group.params.size(); ++i) {
      auto& half = is_hidden_matrix(group.params[i], group.names.empty() ? "" : group.names[i])
                       ? matrices
                       : rest;
      half.params.push_back(group.params[i]);
      if (!group.names.empty()) half.names.push_back(group.names[i]);
    }
    if (!matrices.params.empty())
      result.groups.push_back(std::move(matrices)), result.uses_muon.push_back(true);
    if (!rest.params.empty())
      result.groups.push_back(std::move(rest)), result.uses_muon.push_back(false);
  }
  return result;
}

void Muon::update_matrices(Bucket& bucket, const MuonOptions& o) {
  const auto& group = groups_[bucket.group];
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto& param = bucket.params[i];
    const auto& grad = bucket.grads[i];
    const auto& momentum = bucket.slots[kMomentum][i];
    momentum.lerp_(grad, 1 - o.momentum);
    const auto direction =
        orthogonalised(o.nesterov ? grad.lerp(momentum, o.momentum) : momentum, o);
    param.mul_(1 - group.lr * group.weight_decay);
    param.add_(direction, -adjusted_rate(group.lr, o.adjust_lr_fn, param));
  }
}

void Muon::update(Bucket& bucket, const StepContext&) {
  const auto& o = options_[bucket.group];
  if (uses_muon_[bucket.group]) return update_matrices(bucket, o);
  const auto& group = groups_[bucket.group];
  advance_step_tensor(bucket);
  at::_fused_adamw_(bucket.params, bucket.grads, bucket.slots[kMuonFirst],
                    bucket.slots[kMuonSecond], {}, bucket.steps, group.lr, o.adamw_betas[0],
                    o.adamw_betas[1], group.weight_decay, o.adamw_eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

std::vector<torch::Tensor> Muon::make_slots(const torch::Tensor& param, size_t group) const {
  if (uses_muon_[group]) return {zeros_like_param(param), {}, {}};
  return {{}, zeros_like_param(param), zeros_like_param(param)};
}

int64_t Muon::bucket_step(const Bucket& bucket) const {
  return uses_muon_[bucket.group] ? bucket.step : read_step_tensor(bucket);
}

StateTree Muon::group_options(size_t group) const {
  const auto& o = options_[group];
  auto options = StateTree::dict()
                     .set("lr", groups_[group].lr)
                     .set("use_muon", uses_muon_[group] ? true : false);
  if (!uses_muon_[group])
    return options.set("betas", saved::tuple_of(o.adamw_betas)).set("eps", o.adamw_eps);
  return options.set("momentum", o.momentum)
      .set("nesterov", o.nesterov)
      .set("ns_coefficients", saved::tuple_of(o.ns_coefficients))
      .set("eps", o.eps)
      .set("ns_steps", o.ns_steps)
      .set("adjust_lr_fn", saved::or_none(o.adjust_lr_fn));
}

void Muon::load_group_options(size_t group, const StateTree& saved) {
  auto& o = options_[group];
  saved::take(saved, "eps", uses_muon_[group] ? o.eps : o.adamw_eps);
  saved::take(saved, "betas", o.adamw_betas);
  saved::take(saved, "momentum", o.momentum);
  saved::take(saved, "nesterov", o.nesterov);
  saved::take(saved, "ns_coefficients", o.ns_coefficients);
  saved::take(saved, "ns_steps", o.ns_steps);
  saved::take(saved, "adjust_lr_fn", o.adjust_lr_fn);
}

StateTree Muon::param_entry(const ParamState& state, size_t group) const {
  if (!uses_muon_[group]) return Optimizer::param_entry(state, group);
  return StateTree::dict().set("momentum_buffer", state.slots[kMomentum]);
}

}  // namespace gradus
