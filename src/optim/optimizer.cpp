#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/reciprocal.h>
#include <gradus/core/error.h>
#include <gradus/optim/optimizer.h>

#include <unordered_map>

#include "optim/saved_options.h"

namespace gradus {
namespace {

[[noreturn]] void mismatch(const std::string& message) {
  throw Error("G-OPTIM-3", ErrorKind::checkpoint, "cannot load the optimizer's state: " + message,
              "The state belongs to another model or other parameter groups. Resume with the model "
              "and options it was saved with.");
}

// Kernels walk parameter and gradient in memory order, so both must lie the same way.
bool lies_as(const torch::Tensor& grad, const torch::Tensor& param) {
  return (grad.is_contiguous() && param.is_contiguous()) || grad.strides() == param.strides();
}

}  // namespace

Optimizer::Optimizer(std::vector<ParamGroupInit> groups, double lr, double weight_decay)
    : default_lr_(lr) {
  std::unordered_map<const void*, bool> seen;
  for (auto& init : groups) {
    for (const auto& param : init.params) {
      if (!param.defined())
        throw Error("G-OPTIM-1", ErrorKind::usage, "an optimizer was given an undefined parameter");
      if (!seen.emplace(param.unsafeGetTensorImpl(), true).second)
        throw Error("G-OPTIM-1", ErrorKind::usage,
                    "an optimizer was given the same parameter twice",
                    "List tied parameters once; decay_groups does so.");
    }
    if (!init.names.empty() && init.names.size() != init.params.size())
      throw Error("G-OPTIM-1", ErrorKind::usage,
                  "a parameter group has " + std::to_string(init.params.size()) +
                      " parameters and " + std::to_string(init.names.size()) +
                      " names; expected as many or none");
    states_.emplace_back(init.params.size());
    groups_.push_back({std::move(init.params), std::move(init.names), std::move(init.roles),
                       init.lr.value_or(lr), std::nullopt,
                       init.weight_decay.value_or(weight_decay)});
  }
  if (groups_.empty())
    throw Error("G-OPTIM-1", ErrorKind::usage, "an optimizer was given no parameter group",
                "Give it the model's parameters: model->parameters().");
}

std::vector<ParamGroupInit> Optimizer::one_group(std::vector<torch::Tensor> params) {
  std::vector<ParamGroupInit> groups(1);
  groups[0].params = std::move(params);
  return groups;
}

void Optimizer::check_ranges(const std::vector<double>& betas) const {
  const auto refuse = [&](const std::string& what, double value, const std::string& expected) {
    throw Error(
        "G-OPTIM-1", ErrorKind::usage,
        name() + ": " + what + " must be " + expected + ", received " + std::to_string(value));
  };
  for (const auto& group : groups_) {
    if (!(group.lr >= 0)) refuse("the learning rate", group.lr, "at least 0");
    if (!(group.weight_decay >= 0)) refuse("weight_decay", group.weight_decay, "at least 0");
  }
  for (double beta : betas)
    if (!(beta >= 0 && beta < 1)) refuse("a beta", beta, "in [0, 1)");
}

void Optimizer::step(const StepContext& context) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  StepContext used = context;
  if (context.found_inf && (context.found_inf->is_cpu() || !skips_on_device())) {
    if (context.found_inf->item<double>() != 0) return;
    used.found_inf.reset();
  }
  if (stale_ || !collect_grads()) rebuild_buckets();
  begin_step();
  for (auto& bucket : buckets_) {
    ++bucket.step;
    if (used.grad_scale && !takes_grad_scale())
      at::_foreach_mul_(bucket.grads, at::reciprocal(*used.grad_scale));
    if (used.clip_coef && !updates_weights()) at::_foreach_mul_(bucket.grads, *used.clip_coef);
    update(bucket, used);
    if (!bucket.weights.empty() && !updates_weights())
      at::_foreach_copy_(bucket.weights, bucket.params);
    for (const auto* tensors : {&bucket.params, &bucket.weights})
      for (const auto& tensor : *tensors) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void Optimizer::train_masters(const std::vector<torch::Tensor>& weights,
                              const std::vector<torch::Tensor>& masters) {
  std::unordered_map<const void*, size_t> places;
  for (size_t i = 0; i < weights.size(); ++i) places[weights[i].unsafeGetTensorImpl()] = i;
  store_bucket_steps();
  weights_.clear();
  for (auto& group : groups_) {
    auto& held = weights_.emplace_back(group.params.size());
    for (size_t i = 0; i < group.params.size(); ++i) {
      const auto found = places.find(group.params[i].unsafeGetTensorImpl());
      if (found == places.end()) continue;
      held[i] = std::exchange(group.params[i], masters[found->second]);
    }
  }
  buckets_.clear();
  stale_ = true;
}

void Optimizer::release_masters() {
  store_bucket_steps();
  for (size_t g = 0; g < weights_.size(); ++g)
    for (size_t i = 0; i < weights_[g].size(); ++i)
      if (weights_[g][i].defined()) groups_[g].params[i] = weights_[g][i];
  weights_.clear();
  buckets_.clear();
  stale_ = true;
}

// Puts the second of each pair in place of the first; `state_of(old state, size of the new)` is its
// state.
template <class F>
void Optimizer::replace_parameters(
    const std::vector<std::pair<torch::Tensor, torch::Tensor>>& others, const F& state_of) {
  std::unordered_map<const void*, const torch::Tensor*> places;
  for (const auto& [from, to] : others) places[from.unsafeGetTensorImpl()] = &to;
  store_bucket_steps();
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t i = 0; i < groups_[g].params.size(); ++i) {
      auto& param = groups_[g].params[i];
      const auto found = places.find(param.unsafeGetTensorImpl());
      if (found == places.end()) continue;
      states_[g][i] = state_of(std::move(states_[g][i]), param, *found->second);
      param = *found->second;
    }
  }
  buckets_.clear();
  inactive_.clear();
  stale_ = true;
}

void Optimizer::train_parts(const std::vector<torch::Tensor>& parameters,
                            const std::vector<torch::Tensor>& parts) {
  parts_.clear();
  for (size_t i = 0; i < parameters.size(); ++i) parts_.emplace_back(parameters[i], parts[i]);
  const auto kept = std::exchange(kept_, {});
  size_t next = 0;
  bool fits = kept.size() == parts.size();
  replace_parameters(parts_, [&](ParamState, const torch::Tensor&, const torch::Tensor& part) {
    fits = fits && kept[next].first == part.numel();
    return fits ? kept[next++].second : ParamState{};
  });
}

void Optimizer::release_parts() {
  std::vector<std::pair<torch::Tensor, torch::Tensor>> back;
  for (const auto& [parameter, part] : parts_) back.emplace_back(part, parameter);
  replace_parameters(back, [&](ParamState state, const torch::Tensor& part, const torch::Tensor&) {
    kept_.emplace_back(part.numel(), std::move(state));
    return ParamState{};
  });
  parts_.clear();
}

const torch::Tensor& Optimizer::holder(size_t group, size_t index) const {
  if (!weights_.empty() && weights_[group][index].defined()) return weights_[group][index];
  return groups_[group].params[index];
}

std::vector<torch::Tensor> Optimizer::gradient_holders() const {
  std::vector<torch::Tensor> holders;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t i = 0; i < groups_[g].params.size(); ++i) holders.push_back(holder(g, i));
  return holders;
}

void Optimizer::zero_grad(bool set_to_none) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t i = 0; i < groups_[g].params.size(); ++i) {
      auto& grad = holder(g, i).mutable_grad();
      if (!grad.defined()) continue;
      if (set_to_none) {
        grad.reset();
      } else {
        grad = grad.detach();
        grad.zero_();
      }
    }
  }
  if (!set_to_none) return;
  for (auto& bucket : buckets_)  // the last handles on them: their memory is free for the next step
    for (auto& grad : bucket.grads) grad.reset();
}

// The gradient in the type `update` takes; that of a master comes in its weight's type.
torch::Tensor Optimizer::grad_for(const torch::Tensor& holder) const {
  const auto& grad = holder.grad();
  return weights_.empty() || updates_weights() || !grad.defined() ? grad : grad.to(at::kFloat);
}

// False when a gradient came or went since the buckets were made.
bool Optimizer::collect_grads() {
  const bool converts = !weights_.empty() && !updates_weights();
  for (const auto& [group, index] : inactive_)
    if (holder(group, index).grad().defined()) return false;
  for (auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.params.size(); ++i) {
      const auto& param = bucket.params[i];
      const auto& from = bucket.weights.empty() ? param : bucket.weights[i];
      const auto& grad = from.grad();
      if (!grad.defined() || grad.layout() != at::kStrided || !lies_as(grad, param)) return false;
      bucket.grads[i] = converts && !bucket.weights.empty() ? grad.to(at::kFloat) : grad;
    }
  }
  return true;
}

void Optimizer::rebuild_buckets() {
  store_bucket_steps();
  ++arrangement_;
  buckets_.clear();
  inactive_.clear();
  const size_t slot_count = slot_names().size();
  bool odd_layout = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t i = 0; i < groups_[g].params.size(); ++i) {
      const auto& param = groups_[g].params[i];
      const auto& from = holder(g, i);
      auto grad = grad_for(from);
      if (!grad.defined()) {
        inactive_.emplace_back(g, i);
        continue;
      }
      if (grad.layout() != at::kStrided)
        throw Error("G-OPTIM-2", ErrorKind::training,
                    name() + " cannot use the sparse gradient of " + parameter_text(g, i),
                    "Make the layer's gradient dense: EmbeddingOptions(…).sparse(false).");
      if (!lies_as(grad, param)) {
        grad = torch::empty_like(param, param.options().dtype(grad.scalar_type())).copy_(grad);
        odd_layout = true;
      }
      auto& state = states_[g][i];
      if (!state.exists) state = {true, state.step, make_slots(param, g)};
      const auto same = [&](const Bucket& bucket) {
        return bucket.group == g && bucket.step == state.step &&
               bucket.params[0].scalar_type() == param.scalar_type() &&
               bucket.params[0].device() == param.device() &&
               bucket.weights.empty() == from.is_same(param);
      };
      auto bucket = std::find_if(buckets_.begin(), buckets_.end(), same);
      if (bucket == buckets_.end()) {
        buckets_.emplace_back();
        bucket = std::prev(buckets_.end());
        bucket->group = g;
        bucket->step = state.step;
        bucket->slots.resize(slot_count);
      }
      bucket->index.push_back(i);
      bucket->params.push_back(param);
      if (!from.is_same(param)) bucket->weights.push_back(from);
      bucket->grads.push_back(std::move(grad));
      for (size_t k = 0; k < slot_count; ++k) bucket->slots[k].push_back(state.slots[k]);
    }
  }
  for (auto& bucket : buckets_) {
    for (auto& slot : bucket.slots)
      if (std::none_of(slot.begin(), slot.end(),
                       [](const auto& tensor) { return tensor.defined(); }))
        slot.clear();
    if (step_form() == StepForm::tensor) {
      bucket.step_tensor =
          torch::full({}, double(bucket.step),
                      torch::TensorOptions().dtype(at::kFloat).device(bucket.params[0].device()));
      bucket.steps.assign(bucket.params.size(), bucket.step_tensor);
    }
  }
  stale_ = odd_layout;  // such gradients are copied, so the lists hold for one step only
}

void Optimizer::advance_step_tensor(Bucket& bucket) {
  if (bucket.step_tensor.is_cpu()) {
    *bucket.step_tensor.mutable_data_ptr<float>() = float(bucket.step);
  } else {
    bucket.step_tensor.add_(1);
  }
}

int64_t Optimizer::read_step_tensor(const Bucket& bucket) {
  return bucket.step_tensor.is_cpu() ? bucket.step : bucket.step_tensor.item().toLong();
}

void Optimizer::store_bucket_steps() const {
  for (const auto& bucket : buckets_) {
    const int64_t step = bucket_step(bucket);
    for (size_t i : bucket.index) states_[bucket.group][i].step = step;
  }
}

const std::vector<std::vector<Optimizer::ParamState>>& Optimizer::current_states() const {
  store_bucket_steps();
  return states_;
}

std::string Optimizer::parameter_text(size_t group, size_t index) const {
  size_t number = index;
  for (size_t g = 0; g < group; ++g) number += groups_[g].params.size();
  const auto& names = groups_[group].names;
  return "parameter " + std::to_string(number) + (names.empty() ? "" : " (" + names[index] + ")");
}

StateTree Optimizer::param_entry(const ParamState& state, size_t) const {
  auto entry = StateTree::dict();
  if (step_form() == StepForm::integer) entry.set("step", state.step);
  if (step_form() == StepForm::tensor) entry.set("step", torch::tensor(float(state.step)));
  const auto names = slot_names();
  for (size_t k = 0; k < names.size(); ++k)
    if (state.slots[k].defined()) entry.set(names[k], state.slots[k]);
  return entry;
}

Optimizer::ParamState Optimizer::read_param_entry(const StateTree& entry,
                                                  const torch::Tensor& param, size_t group,
                                                  const std::string& what) const {
  ParamState state{true, 0, make_slots(param, group)};
  if (const auto* step = entry.find("step"); step != nullptr && !step->is_none())
    state.step = int64_t(step->as_double());
  const auto names = slot_names();
  for (size_t k = 0; k < names.size(); ++k) {
    const auto* saved = entry.find(names[k]);
    if (saved == nullptr || !saved->is_tensor()) continue;
    if (!state.slots[k].defined())
      state.slots[k] = torch::zeros_like(
          param, param.options().dtype(saved->as_tensor().scalar_type()).requires_grad(false));
    copy_slot(state.slots[k], saved->as_tensor(), what + ", '" + names[k] + "'");
  }
  return state;
}

void Optimizer::copy_slot(torch::Tensor& slot, const torch::Tensor& saved,
                          const std::string& what) {
  if (slot.sizes() != saved.sizes())
    mismatch(what + ": expected shape " + c10::str(slot.sizes()) + ", the file has " +
             c10::str(saved.sizes()));
  torch::NoGradGuard no_grad;
  slot.copy_(saved);
}

void Optimizer::complete_slots(ParamState& state, const torch::Tensor& param, size_t group) const {
  const auto wanted = make_slots(param, group);
  for (size_t k = 0; k < wanted.size(); ++k)
    if (!state.slots[k].defined()) state.slots[k] = wanted[k];
}

StateTree Optimizer::state_dict() const {
  const auto& states = current_states();
  auto entries = StateTree::dict();
  auto saved_groups = StateTree::list();
  int64_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    auto saved = StateTree::dict();
    const auto options = group_options(g);
    if (!options.contains("weight_decay")) saved.set("weight_decay", groups_[g].weight_decay);
    if (!options.contains("lr")) saved.set("lr", groups_[g].lr);
    for (const auto& [key, value] : options.entries()) saved.set(key, value);
    if (groups_[g].initial_lr) saved.set("initial_lr", *groups_[g].initial_lr);
    auto numbers = StateTree::list();
    for (const auto& state : states[g]) {
      if (state.exists) {
        auto entry = param_entry(state, g);
        if (!entry.entries().empty()) entries.set(number, std::move(entry));
      }
      numbers.push(number++);
    }
    saved.set("params", std::move(numbers));
    saved_groups.push(std::move(saved));
  }
  return StateTree::dict()
      .set("state", std::move(entries))
      .set("param_groups", std::move(saved_groups));
}

void Optimizer::load_state_dict(const StateTree& state) {
  const auto& saved_groups = state.at("param_groups").items();
  if (saved_groups.size() != groups_.size())
    mismatch("it has " + std::to_string(saved_groups.size()) +
             " parameter groups, this optimizer " + std::to_string(groups_.size()));
  const auto& entries = state.at("state");
  std::vector<std::vector<ParamState>> loaded;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& numbers = saved_groups[g].at("params").items();
    if (numbers.size() != groups_[g].params.size())
      mismatch("group " + std::to_string(g) + " has " + std::to_string(numbers.size()) +
               " parameters there and " + std::to_string(groups_[g].params.size()) + " here");
    loaded.emplace_back(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i)
      if (const auto* entry = entries.find(numbers[i].as_int()))
        loaded[g][i] = read_param_entry(*entry, groups_[g].params[i], g, parameter_text(g, i));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& saved = saved_groups[g];
    saved::take(saved, "lr", groups_[g].lr);
    saved::take(saved, "weight_decay", groups_[g].weight_decay);
    saved::take(saved, "initial_lr", groups_[g].initial_lr);
    load_group_options(g, saved);
    for (size_t i = 0; i < loaded[g].size(); ++i)
      if (loaded[g][i].exists) complete_slots(loaded[g][i], groups_[g].params[i], g);
  }
  states_ = std::move(loaded);
  kept_.clear();
  buckets_.clear();
  stale_ = true;
}

}  // namespace gradus
